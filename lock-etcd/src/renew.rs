//! Renewals: one keep-alive for all locks on a lease of etcd, and one read that shows that they are held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use etcd_client::{Client, Error as ClientError, KeyValue, Txn, TxnOp};
use futures_util::future::{join_all, try_join_all};
use polylock_core::engine::{Moment, before};
use polylock_core::{Error, LeaseState, LostReason, RenewalRequest, Renewer, Result, TtlRule};
use tokio::join;
use tokio::time::Instant;

use crate::connection::kv;
use crate::error::EtcdFailure;
use crate::lease::EtcdLease;
use crate::queue::EtcdContender;
use crate::server_lease::{ServerLease, whole_seconds};
use crate::store::{EtcdStore, gets, term};

/// A lock of this client that is due.
struct Due<'a> {
    at: usize,
    request: &'a RenewalRequest,
    lease: Arc<EtcdLease>,
    path: String,
    /// Until when the lease has to last.
    end: Moment,
}

/// How a lock is renewed.
enum RenewMethod {
    /// Its lease of etcd lasts for long enough: only the key is read.
    Check,
    /// Its lease of etcd is kept alive.
    KeepAlive(Arc<ServerLease>),
    /// It gets another lease of etcd.
    Move,
}

/// The answers that are known so far, in the order of the requests.
struct RenewReplies(Mutex<Vec<Result<LeaseState>>>);

impl RenewReplies {
    fn report(&self, at: usize, state: Result<LeaseState>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known[at] = state;
    }
}

/// How many keys one transaction reads; servers allow 128 operations unless configured.
const READS: usize = 100;

#[async_trait]
impl Renewer for EtcdStore {
    /// Runs on the engine, so that a caller that stops polling delays no other renewal.
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let (store, requests) = (Weak::clone(&self.this), due.to_vec());
        let renewed = self.engine.run(async move {
            let store = store.upgrade().ok_or(EtcdFailure::LeaseGone)?;
            Ok(store.renew_all(&requests).await)
        });
        let renewed = renewed.await;
        renewed.unwrap_or_else(|error| due.iter().map(|_| Err(error.clone())).collect())
    }

    fn adopts(&self) -> bool {
        true
    }
}

impl Due<'_> {
    /// Whether its lease of etcd, as it is known now, lasts for the ttl of the request.
    fn lasts(&self) -> Option<Arc<ServerLease>> {
        let attached = self.lease.server_lease()?;
        let lasts = attached.lasts_until() >= self.end && self.request.rule == TtlRule::AtLeast;
        lasts.then_some(attached)
    }

    fn plan(&self) -> RenewMethod {
        if self.lasts().is_some() {
            return RenewMethod::Check;
        }
        let seconds = whole_seconds(self.request.ttl);
        match self.lease.server_lease() {
            Some(attached)
                if self.request.rule == TtlRule::AtLeast
                    && attached.ttl.as_secs() == seconds
                    && !attached.is_retired() =>
            {
                RenewMethod::KeepAlive(attached)
            }
            _ => RenewMethod::Move,
        }
    }
}

impl EtcdStore {
    async fn renew_all(&self, requests: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        // The key of a lock that is kept for its min hold moves to another lease of etcd, and the other locks
        // stay on the one that it had.
        let is_last = |request: &&RenewalRequest| request.rule == TtlRule::Exactly;
        for request in requests.iter().filter(is_last) {
            if let Some(lease) = self.lease(request.id) {
                lease.begin_last_renewal();
            }
        }
        self.retire_ended();
        let timeout = requests.iter().map(|request| request.timeout).min();
        let timeout = timeout.unwrap_or_default();
        let until = Instant::now() + RenewalRequest::collect_for(requests);
        let begun = self.engine.now();
        let mut kept: HashMap<i64, (Arc<ServerLease>, Vec<Due<'_>>)> = HashMap::new();
        let silent = requests
            .iter()
            .map(|_| Err(EtcdFailure::Silent(timeout).into()));
        let (mut alone, replies) = (Vec::new(), RenewReplies(Mutex::new(silent.collect())));
        for (at, request) in requests.iter().enumerate() {
            let lease = self.lease(request.id);
            let known = lease.and_then(|lease| Some((lease.known_path()?, lease)));
            let Some((path, lease)) = known else {
                replies.report(at, Ok(LeaseState::Lost(LostReason::Stolen)));
                continue;
            };
            let end = begun + request.ttl;
            let due = Due {
                at,
                request,
                lease,
                path,
                end,
            };
            match due.plan() {
                RenewMethod::KeepAlive(lease) => {
                    let batch = kept.entry(lease.id);
                    batch.or_insert_with(|| (lease, Vec::new())).1.push(due);
                }
                plan => alone.push((plan, due)),
            }
        }
        let known = &replies;
        let kept = kept
            .values()
            .map(|(lease, due)| self.keep_alive(lease, due, known));
        let alone = alone.iter().map(|(plan, due)| async move {
            let state = match plan {
                RenewMethod::Check => self.check(due).await,
                _ => self.relocate(due).await,
            };
            known.report(due.at, state.map_err(Error::from));
        });
        // A lock whose write is late costs none of the others.
        before(until, async { join!(join_all(kept), join_all(alone)) }).await;
        replies
            .0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews a lease of etcd, and reports which of its locks are held.
    async fn keep_alive(
        &self,
        attached: &Arc<ServerLease>,
        due: &[Due<'_>],
        replies: &RenewReplies,
    ) {
        let paths: Vec<_> = due.iter().map(|due| due.path.as_str()).collect();
        let renewed = self.renewed(attached, |client| read(client, &paths));
        let found = match renewed.await {
            // The keys say which of the locks have ended with it.
            Err(EtcdFailure::LeaseGone) => self.read(&paths).await,
            found => found,
        };
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                let error = Error::from(failure);
                for due in due {
                    replies.report(due.at, Err(error.clone()));
                }
                return;
            }
        };
        let states = due.iter().zip(found).map(|(due, found)| async move {
            let state = match judge(due, found).await {
                Some(state) => Ok(state),
                None => self.relocate(due).await,
            };
            replies.report(due.at, state.map_err(Error::from));
        });
        join_all(states).await;
    }

    async fn check(&self, due: &Due<'_>) -> Result<LeaseState, EtcdFailure> {
        let found = self.read(&[&due.path]).await?.pop().flatten();
        match judge(due, found).await {
            Some(state) => Ok(state),
            None => self.relocate(due).await,
        }
    }

    /// Attaches the key of a lock to a lease of etcd that lasts for the ttl of the request, unless it has got
    /// one meanwhile.
    async fn relocate(&self, due: &Due<'_>) -> Result<LeaseState, EtcdFailure> {
        let lease = &due.lease;
        let _one_writes = lease.writing.lock().await;
        if due.lasts().is_some() {
            let found = self.read(&[&due.path]).await?.pop().flatten();
            if let Some(state) = judge(due, found).await {
                return Ok(state);
            }
        }
        let moved = async { lease.put(&self.target(due).await?, None).await };
        match (moved.await, lease.server_lease()) {
            // Its lease was to end for another lock. That stays held until there is space, at the cost of those that
            // are queued for it: a full database takes no new contenders.
            (Err(failure), Some(attached)) if failure.is_full() => {
                let path = [due.path.as_str()];
                let renewed = self.renewed(&attached, |client| read(client, &path));
                let found = renewed.await?.pop().flatten();
                judge(due, found).await.ok_or(failure)
            }
            (moved, _) => moved,
        }
    }

    /// The lease of etcd that a lock is moved to. A lock that is extended, or that is to end by itself,
    /// must not be kept alive by others.
    async fn target(&self, due: &Due<'_>) -> Result<Arc<ServerLease>, EtcdFailure> {
        let Due { request, lease, .. } = due;
        if request.rule == TtlRule::Exactly || request.ttl != lease.ttl || !lease.is_shared {
            // The scheduler repeats what fails.
            return self.private_lease(request.ttl, Instant::now()).await;
        }
        let target = self.shared_lease_to_renew(request.ttl).await?;
        if target.lasts_until() < due.end {
            let path = [due.path.as_str()];
            self.renewed(&target, |client| read(client, &path)).await?;
        }
        Ok(target)
    }

    async fn read(&self, paths: &[&str]) -> Result<Vec<Option<KeyValue>>, EtcdFailure> {
        let read = self.connection.send(|client| read(client, paths));
        Ok(read.await?.0)
    }
}

/// Judges a lock by what is at its key; `None` if it is held, and needs another lease of etcd to last for the ttl
/// of the request.
async fn judge(due: &Due<'_>, found: Option<KeyValue>) -> Option<LeaseState> {
    let found = found.map(|found| EtcdContender::read("", &found));
    if let Some(lost) = due.lease.loss(found.as_ref()).await {
        return Some(lost);
    }
    // It has another one where an administrator or an extension has given it that meanwhile.
    let (attached, own) = (due.lasts()?, found?);
    (attached.id == own.lease).then_some(LeaseState::Held)
}

/// Reads keys as the cluster has them now, and the term of the server that answers. All requests leave at once: one
/// after the other, those for many locks would take longer than a renewal may.
async fn read(client: Client, paths: &[&str]) -> Result<(Vec<Option<KeyValue>>, u64), ClientError> {
    let reads = paths.chunks(READS).map(|paths| {
        let reads: Vec<_> = paths.iter().map(|path| TxnOp::get(*path, None)).collect();
        let mut client = kv(&client);
        async move { client.txn(Txn::new().and_then(reads)).await }
    });
    let done = try_join_all(reads).await?;
    // Each was sent after the keep-alive was answered, so that any of them confirms it.
    let seen = done.first().map(|done| term(done.header()));
    let found = done.iter().flat_map(gets);
    let found = found.map(|mut found| found.take_kvs().pop()).collect();
    Ok((found, seen.unwrap_or_default()))
}
