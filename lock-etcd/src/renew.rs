//! Renewals: one keep-alive for all locks on a lease of etcd, and one read that shows that they are held.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{Client, Error as ClientError, KeyValue, Txn, TxnOp};
use futures_util::future::join_all;
use polylock_core::{Error, LeaseState, LostReason, RenewalRequest, Renewer, Result, TtlRule};
use tokio::join;

use crate::error::Failure;
use crate::lease::EtcdLease;
use crate::queue::Contender;
use crate::server_lease::{ServerLease, whole_seconds};
use crate::store::{Store, gets, term};

/// A lock of this client that is due.
struct Due<'a> {
    at: usize,
    request: &'a RenewalRequest,
    lease: Arc<EtcdLease>,
    path: String,
}

/// How a lock is renewed.
enum Plan {
    /// Its lease of etcd lasts for longer than is asked for: only the key is looked at.
    Check(Arc<ServerLease>),
    /// Its lease of etcd is kept alive.
    KeepAlive(Arc<ServerLease>),
    /// It gets another lease of etcd.
    Move,
}

/// Answers, by their place among the requests.
type Answers = Vec<(usize, Result<LeaseState>)>;

/// How many keys one transaction reads; servers allow 128 operations unless configured.
const READS: usize = 100;

#[async_trait]
impl Renewer for Store {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        self.retire_left();
        let mut kept: HashMap<i64, (Arc<ServerLease>, Vec<Due<'_>>)> = HashMap::new();
        let (mut alone, mut answers) = (Vec::new(), Vec::new());
        for (at, request) in due.iter().enumerate() {
            let lease = self.lease(request.id);
            let known = lease.and_then(|lease| Some((lease.known_path()?, lease)));
            let Some((path, lease)) = known else {
                answers.push((at, Ok(LeaseState::Lost(LostReason::Stolen))));
                continue;
            };
            let plan = self.plan(&lease, request);
            let due = Due {
                at,
                request,
                lease,
                path,
            };
            match plan {
                Plan::KeepAlive(lease) => {
                    let batch = kept.entry(lease.id);
                    batch.or_insert_with(|| (lease, Vec::new())).1.push(due);
                }
                plan => alone.push((plan, due)),
            }
        }
        let kept = kept
            .values()
            .map(|(lease, due)| self.keep_alive(lease, due));
        let alone = alone.iter().map(|(plan, due)| async move {
            let state = self.renew_alone(plan, due).await;
            (due.at, state.map_err(Error::from))
        });
        let (kept, alone) = join!(join_all(kept), join_all(alone));
        answers.extend(kept.into_iter().flatten().chain(alone));
        answers.sort_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn adopts(&self) -> bool {
        true
    }
}

impl Store {
    fn plan(&self, lease: &EtcdLease, request: &RenewalRequest) -> Plan {
        let Some(attached) = lease.server_lease() else {
            return Plan::Move;
        };
        let (seconds, asked) = (attached.ttl.as_secs(), whole_seconds(request.ttl));
        if request.rule == TtlRule::Exactly {
            return Plan::Move;
        }
        if seconds > asked && attached.lasts_until() >= self.engine.now() + request.ttl {
            return Plan::Check(attached);
        }
        match seconds == asked && !attached.is_retired() {
            true => Plan::KeepAlive(attached),
            false => Plan::Move,
        }
    }

    /// Renews a lease of etcd, and says which of its locks are held.
    async fn keep_alive(&self, attached: &Arc<ServerLease>, due: &[Due<'_>]) -> Answers {
        let paths: Vec<_> = due.iter().map(|due| due.path.as_str()).collect();
        let renewed = self.renewed(attached, |client| read(client, &paths));
        let (found, is_renewed) = match renewed.await {
            // A server that lags may not know it yet: the keys say whether it has ended.
            Err(Failure::LeaseGone) => {
                attached.retire();
                let read = self.connection.send(|client| read(client, &paths));
                (read.await.map(|(found, _)| found), false)
            }
            found => (found, true),
        };
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                let error = Error::from(failure);
                return due.iter().map(|due| (due.at, Err(error.clone()))).collect();
            }
        };
        let states = due.iter().zip(found).map(|(due, found)| async move {
            let state = self.judge(due, found, attached, is_renewed).await;
            (due.at, state.map_err(Error::from))
        });
        join_all(states).await
    }

    async fn renew_alone(&self, plan: &Plan, due: &Due<'_>) -> Result<LeaseState, Failure> {
        let Plan::Check(attached) = plan else {
            return self.relocate(due).await;
        };
        let path = [due.path.as_str()];
        let read = self.connection.send(|client| read(client, &path));
        let found = read.await?.0.pop().flatten();
        self.judge(due, found, attached, true).await
    }

    /// What is known of a lock by what is at its key.
    async fn judge(
        &self,
        due: &Due<'_>,
        found: Option<KeyValue>,
        attached: &ServerLease,
        is_renewed: bool,
    ) -> Result<LeaseState, Failure> {
        let Some(found) = found else {
            return Ok(due.lease.lost(match is_renewed {
                // Somebody has deleted the key of a lease that lives.
                true => LostReason::Broken,
                false => LostReason::Stolen,
            }));
        };
        let contender = Contender::read("", &found);
        if contender.id() != Some(due.lease.id) {
            return Ok(due.lease.lost(LostReason::Stolen));
        }
        match (contender.lease == attached.id, is_renewed) {
            (true, true) => Ok(LeaseState::Held),
            (true, false) => Err(Failure::LeaderChanged),
            // An administrator has given it another lease of etcd.
            (false, _) => self.relocate(due).await,
        }
    }

    /// Attaches the key of a lock to a lease of etcd that lasts as it is asked for.
    async fn relocate(&self, due: &Due<'_>) -> Result<LeaseState, Failure> {
        let (request, lease) = (due.request, &due.lease);
        // What is extended, or is to end by itself, must not be kept alive by others.
        let is_plain = request.rule != TtlRule::Exactly && request.ttl == lease.ttl;
        let target = match is_plain && lease.is_shared {
            true => self.recent_lease(due).await?,
            false => self.private_lease(request.ttl, self.step()).await?,
        };
        lease.write(&target, None).await
    }

    /// A shared lease that lasts for its ttl from now on.
    async fn recent_lease(&self, due: &Due<'_>) -> Result<Arc<ServerLease>, Failure> {
        let begun = self.engine.now();
        let lease = self.shared_lease(due.request.ttl, self.step()).await?;
        if lease.proven() < begun {
            let path = [due.path.as_str()];
            self.renewed(&lease, |client| read(client, &path)).await?;
        }
        Ok(lease)
    }
}

/// Reads keys as the cluster has them now, and the term of the server that answers.
async fn read(
    mut client: Client,
    paths: &[&str],
) -> Result<(Vec<Option<KeyValue>>, u64), ClientError> {
    let (mut found, mut seen) = (Vec::with_capacity(paths.len()), None);
    for paths in paths.chunks(READS) {
        let reads: Vec<_> = paths.iter().map(|path| TxnOp::get(*path, None)).collect();
        let done = client.txn(Txn::new().and_then(reads)).await?;
        seen.get_or_insert_with(|| term(done.header()));
        found.extend(gets(&done).into_iter().map(|mut get| get.take_kvs().pop()));
    }
    Ok((found, seen.unwrap_or_default()))
}
