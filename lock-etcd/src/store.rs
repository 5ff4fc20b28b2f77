//! What the locks of one client have in common: the connection, the leases of etcd, and the requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, Error as ClientError, GetOptions, GetResponse, KeyValue,
    PutOptions, ResponseHeader, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use polylock_core::engine::{
    Blocker, Engine, LeaseId, Moment, QueuePosition, before, queue_position,
};
use polylock_core::{AcquireRequest, LockKey, Renewal};
use tokio::time::Instant;
use tonic::Status;

use crate::config::EtcdConfig;
use crate::connection::{EtcdConnection, kv};
use crate::error::EtcdFailure;
use crate::lease::EtcdLease;
use crate::queue::{EtcdContender, directory};
use crate::server_lease::{KeepAlive, ServerLease, whole_seconds};

pub(crate) struct EtcdStore {
    pub(crate) this: Weak<Self>,
    pub(crate) engine: Engine,
    pub(crate) config: EtcdConfig,
    pub(crate) connection: Arc<EtcdConnection>,
    /// By their ttl in seconds.
    shared: Mutex<HashMap<u64, Arc<ServerLease>>>,
    /// Of the acquisitions.
    grants: GrantQueue,
    /// Of the renewals, which have less time than acquisitions and do not wait for them.
    renewal_grants: GrantQueue,
    leases: Mutex<HashMap<LeaseId, Weak<EtcdLease>>>,
}

/// Held to request a shared lease. If a full database has refused the last request: when that was sent, and
/// the refusal.
type GrantQueue = tokio::sync::Mutex<Option<(Moment, Status)>>;

/// The contenders of a key, as they were at one moment after the request.
#[derive(Debug)]
pub(crate) struct ContenderList {
    /// In the order of their creation.
    pub(crate) contenders: Vec<EtcdContender>,
    pub(crate) revision: i64,
}

impl EtcdStore {
    pub(crate) fn new(config: EtcdConfig, engine: Engine) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            connection: Arc::new(EtcdConnection::new(&Arc::new(config.clone()), &engine)),
            config,
            engine,
            shared: Mutex::default(),
            grants: GrantQueue::default(),
            renewal_grants: GrantQueue::default(),
            leases: Mutex::default(),
        })
    }

    pub(crate) fn directory(&self, key: &LockKey) -> String {
        directory(&self.config.prefix, key)
    }

    /// The deadline of a request that is sent now.
    pub(crate) fn step(&self) -> Instant {
        Instant::now() + self.config.timeout
    }

    /// A lease of etcd for an acquisition, by one request. Acquisitions with automatic renewal share one for each
    /// ttl. Others get their own, which the shared renewals do not keep alive.
    pub(crate) async fn lease_for(
        &self,
        request: &AcquireRequest,
    ) -> Result<Arc<ServerLease>, EtcdFailure> {
        match request.renewal() {
            Renewal::Automatic => self.grant_shared(request.ttl(), &self.grants).await,
            _ => self.grant(request.ttl()).await,
        }
    }

    /// The shared lease of a ttl for a renewal. The scheduler repeats what fails.
    pub(crate) async fn shared_lease_to_renew(
        &self,
        ttl: Duration,
    ) -> Result<Arc<ServerLease>, EtcdFailure> {
        self.grant_shared(ttl, &self.renewal_grants).await
    }

    /// Grants the shared lease of a ttl, unless another task has done so. One task of a queue grants at a time,
    /// and lets others try before it retries.
    async fn grant_shared(
        &self,
        ttl: Duration,
        queue: &GrantQueue,
    ) -> Result<Arc<ServerLease>, EtcdFailure> {
        if let Some(lease) = self.fresh(ttl) {
            return Ok(lease);
        }
        let asked = self.engine.now();
        let mut refused = queue.lock().await;
        if let Some(lease) = self.fresh(ttl) {
            return Ok(lease);
        }
        // A full database has refused a request that was sent later, and would refuse this one as well.
        if let Some((_, status)) = refused.as_ref().filter(|(sent, _)| *sent > asked) {
            return Err(EtcdFailure::Full(status.clone().into()));
        }
        let sent = self.engine.now();
        let lease = self.grant(ttl).await.inspect_err(|failure| {
            *refused = failure.refusal().map(|status| (sent, status));
        })?;
        let mut shared = self.shared();
        // Those that have ended are of no use, and dropping them revokes nothing.
        shared.retain(|_, lease| lease.age() <= lease.ttl);
        let former = shared.insert(whole_seconds(ttl), Arc::clone(&lease));
        drop(shared);
        // Not in the mutex: the last one to have it revokes it.
        drop(former);
        Ok(lease)
    }

    pub(crate) async fn private_lease(
        &self,
        ttl: Duration,
        until: Instant,
    ) -> Result<Arc<ServerLease>, EtcdFailure> {
        loop {
            match self.grant(ttl).await {
                Ok(lease) => return Ok(lease),
                Err(failure) => self.connection.pause(until, failure).await?,
            }
        }
    }

    async fn grant(&self, ttl: Duration) -> Result<Arc<ServerLease>, EtcdFailure> {
        let granted = ServerLease::grant(&self.connection, &self.engine, ttl).await;
        granted.map(Arc::new)
    }

    /// The shared lease of a ttl, if it lasts until its next renewal.
    fn fresh(&self, ttl: Duration) -> Option<Arc<ServerLease>> {
        let lease = self.shared().get(&whole_seconds(ttl)).cloned()?;
        (!lease.is_retired() && lease.age() < lease.ttl / 2).then_some(lease)
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<u64, Arc<ServerLease>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews a lease, and reads: what is read was there after the renewal was answered.
    ///
    /// The answer counts if both are of one term. Then the leader that has answered the keep-alive was
    /// that of the read, which a majority has confirmed since; a leader that is elected later gives every
    /// lease its whole ttl from then on.
    pub(crate) async fn renewed<T, F>(
        &self,
        lease: &ServerLease,
        read: impl Fn(Client) -> F + Send + Sync,
    ) -> Result<T, EtcdFailure>
    where
        F: Future<Output = Result<(T, u64), ClientError>>,
    {
        let renewed = confirmed(|| lease.keep_alive(), || self.connection.send(&read)).await;
        match renewed {
            Ok((sent, found)) => {
                lease.prove(sent);
                Ok(found)
            }
            Err(failure) => {
                if matches!(failure, EtcdFailure::LeaseGone) {
                    lease.retire();
                }
                Err(failure)
            }
        }
    }

    pub(crate) fn add(&self, lease: &Arc<EtcdLease>) {
        self.leases().insert(lease.id, Arc::downgrade(lease));
    }

    pub(crate) fn remove(&self, id: LeaseId) {
        self.leases().remove(&id);
    }

    /// The acquisition with this id, if it is one of this client.
    pub(crate) fn lease(&self, id: LeaseId) -> Option<Arc<EtcdLease>> {
        self.leases().get(&id).and_then(Weak::upgrade)
    }

    /// Retires the leases of etcd of locks that are lost and not released, such as one that was held for longer
    /// than `max_hold`: the other locks of the lease would keep it alive.
    pub(crate) fn retire_ended(&self) {
        let leases: Vec<_> = self.leases().values().filter_map(Weak::upgrade).collect();
        let ended = leases.iter().filter(|lease| lease.has_lost_holder());
        ended.for_each(|lease| lease.retire());
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Weak<EtcdLease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contenders of a key, as the cluster has them now.
    pub(crate) async fn list(
        &self,
        directory: &str,
        until: Instant,
    ) -> Result<ContenderList, EtcdFailure> {
        let listed = self.connection.retried(until, |client| async move {
            let (listing, _) = list(client, directory).await?;
            Ok(listing)
        });
        listed.await
    }

    /// What is left of a lease of etcd, to the second, and its ttl; `None` if it has ended.
    pub(crate) async fn time_left(
        &self,
        lease: i64,
    ) -> Result<Option<(Duration, Duration)>, EtcdFailure> {
        let asked = self
            .connection
            .retried(self.step(), |mut client| async move {
                client.lease_time_to_live(lease, None).await
            });
        let answer = asked.await?;
        // Of one that has ended it is negative.
        let seconds = |seconds: i64| u64::try_from(seconds).ok().map(Duration::from_secs);
        Ok(seconds(answer.ttl()).zip(seconds(answer.granted_ttl())))
    }

    /// Whether a lease of etcd is known to have ended, by one request for which a loss may wait.
    pub(crate) async fn has_ended(&self, lease: &ServerLease) -> bool {
        let id = lease.id;
        let asked = self
            .connection
            .send(|mut client| async move { client.lease_time_to_live(id, None).await });
        let answer = before(Instant::now() + LOSS_TIMEOUT, asked).await;
        // Of one that has ended it is negative.
        matches!(answer, Some(Ok(answer)) if answer.ttl() < 0)
    }

    /// The listing after the end of a blocker, if the contender of this name holds the lock then. Also
    /// `None` if the blocker is of this client: the keys of both may end with one lease of etcd.
    pub(crate) fn without(
        &self,
        listing: &ContenderList,
        blocker: &Blocker,
        name: &str,
    ) -> Option<ContenderList> {
        let Blocker::End(ended) = blocker else {
            return None;
        };
        let (ended, contenders): (Vec<_>, _) =
            (listing.contenders.iter().cloned()).partition(|other| other.name == *ended);
        let is_own = ended
            .iter()
            .filter_map(EtcdContender::id)
            .any(|id| self.lease(id).is_some());
        (!is_own && queue_position(&contenders, name) == QueuePosition::Holds).then_some(
            ContenderList {
                contenders,
                revision: listing.revision,
            },
        )
    }

    /// A contender by its id.
    pub(crate) async fn find(
        &self,
        directory: &str,
        id: LeaseId,
        until: Instant,
    ) -> Result<Option<EtcdContender>, EtcdFailure> {
        let contenders = self.list(directory, until).await?.contenders;
        Ok(contenders
            .into_iter()
            .find(|contender| contender.id() == Some(id)))
    }

    /// Writes a contender's entry with its lease, unless the key was written since a revision. Returns the
    /// revision of the write, or the current contents.
    pub(crate) async fn replace(
        &self,
        key: &str,
        mod_revision: i64,
        value: &str,
        lease: i64,
    ) -> Result<Result<i64, Option<KeyValue>>, EtcdFailure> {
        let txn = Txn::new()
            .when([Compare::mod_revision(key, CompareOp::Equal, mod_revision)])
            .and_then([TxnOp::put(
                key,
                value,
                Some(PutOptions::new().with_lease(lease)),
            )])
            .or_else([TxnOp::get(key, None)]);
        let done = match self.connection.txn(txn).await {
            Err(failure) if failure.is_full() => {
                // etcd executes the request that reaches its quota before it answers so.
                let read = self
                    .connection
                    .send(|mut client| async move { client.get(key, None).await });
                let Ok(found) = read.await else {
                    return Err(failure);
                };
                let is_written = |stored: &KeyValue| {
                    stored.mod_revision() > mod_revision
                        // Otherwise a late request has created it again.
                        && stored.create_revision() <= mod_revision
                        && stored.lease() == lease
                        && stored.value() == value.as_bytes()
                };
                return match found.kvs().first() {
                    Some(stored) if is_written(stored) => Ok(Ok(stored.mod_revision())),
                    Some(stored) if stored.mod_revision() == mod_revision => {
                        Err(failure.without_effect())
                    }
                    // The comparison would have failed.
                    changed => Ok(Err(changed.cloned())),
                };
            }
            done => done?,
        };
        if done.succeeded() {
            return Ok(Ok(revision(done.header())));
        }
        let found = gets(&done).pop();
        Ok(Err(found.and_then(|mut found| found.take_kvs().pop())))
    }

    /// The same with a lease that was granted for this write. Revokes a retired one that the key is certainly not
    /// attached to. One that is not retired is revoked when it is dropped.
    pub(crate) async fn replace_once(
        &self,
        key: &str,
        mod_revision: i64,
        value: &str,
        lease: &ServerLease,
    ) -> Result<Result<i64, Option<KeyValue>>, EtcdFailure> {
        let replaced = self.replace(key, mod_revision, value, lease.id).await;
        let is_unused = match &replaced {
            Ok(Ok(_)) => false,
            // A copy of this request may have come before it.
            Ok(Err(found)) => found.as_ref().is_none_or(|found| found.lease() != lease.id),
            Err(failure) => !failure.is_ambiguous(),
        };
        if is_unused && lease.is_retired() {
            ServerLease::revoke(&self.connection, &self.engine, lease.id);
        }
        replaced
    }
}

/// What is read in the term in which a keep-alive was answered, and when that was sent.
async fn confirmed<T, K, R>(
    keep_alive: impl Fn() -> K,
    read: impl Fn() -> R,
) -> Result<(Moment, T), EtcdFailure>
where
    K: Future<Output = Result<KeepAlive, EtcdFailure>>,
    R: Future<Output = Result<(T, u64), EtcdFailure>>,
{
    for _ in 0..RENEWALS {
        let KeepAlive { sent, term } = keep_alive().await?;
        let (found, term_of_read) = read().await?;
        if term_of_read == term {
            return Ok((sent, found));
        }
    }
    Err(EtcdFailure::LeaderChanged)
}

/// How long a loss that is certain waits for its reason.
const LOSS_TIMEOUT: Duration = Duration::from_millis(100);

/// How often a lease is renewed at once while leaders change.
const RENEWALS: usize = 3;

/// The contenders of a key, and the term of the server that answers.
pub(crate) async fn list(
    client: Client,
    directory: &str,
) -> Result<(ContenderList, u64), ClientError> {
    let found = kv(&client).get(directory, Some(by_creation())).await?;
    let term = term(found.header());
    Ok((ContenderList::of(&found, directory), term))
}

/// All keys of a directory in the order of their creation.
pub(crate) fn by_creation() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
}

impl ContenderList {
    pub(crate) fn of(found: &GetResponse, directory: &str) -> Self {
        let contender = |stored: &KeyValue| {
            let key = String::from_utf8_lossy(stored.key());
            let name = key.strip_prefix(directory).unwrap_or(&key);
            EtcdContender::read(name, stored)
        };
        Self {
            contenders: found.kvs().iter().map(contender).collect(),
            revision: revision(found.header()),
        }
    }

    /// Whether nothing was written since the contender of this name was created.
    pub(crate) fn is_creation_of(&self, name: &str) -> bool {
        let own = self.contenders.iter().find(|own| own.name == name);
        own.is_some_and(|own| own.create_revision == self.revision)
    }
}

pub(crate) fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

pub(crate) fn term(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, ResponseHeader::raft_term)
}

/// What the reads of a transaction have found.
pub(crate) fn gets(done: &TxnResponse) -> Vec<GetResponse> {
    let responses = done.op_responses().into_iter();
    let get = |response| match response {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    };
    responses.filter_map(get).collect()
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("hosts", &self.config.hosts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The terms of keep-alives and of the reads after them, and which keep-alive counts.
    #[tokio::test]
    async fn a_keep_alive_counts_together_with_a_read_of_its_term() {
        for (terms, expected) in [
            (&[(4, 4)][..], Some(0)),
            (&[(4, 5), (5, 5)], Some(1)),
            (&[(5, 4), (5, 6), (6, 6)], Some(2)),
            (&[(4, 5), (5, 6), (6, 7), (7, 7)], None),
        ] {
            let (sent, read) = (RefCell::new(0..), RefCell::new(terms.iter()));
            let keep_alive = || {
                let at = sent.borrow_mut().next().unwrap();
                let term = terms[usize::try_from(at).unwrap()].0;
                let sent = Moment::from_nanos(at);
                std::future::ready(Ok(KeepAlive { sent, term }))
            };
            let read = || std::future::ready(Ok(((), read.borrow_mut().next().unwrap().1)));
            let counted = confirmed(keep_alive, read).await.ok();
            let counted = counted.map(|(sent, ())| sent.as_nanos());
            assert_eq!(counted, expected, "{terms:?}");
        }
    }
}
