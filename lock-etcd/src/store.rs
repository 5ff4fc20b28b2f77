//! What the locks of one client have in common: the connection, the leases of etcd, and the requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, Error as ClientError, GetOptions, GetResponse, KeyValue,
    PutOptions, ResponseHeader, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use polylock_core::engine::{Engine, LeaseId};
use polylock_core::{AcquireRequest, LockKey, Renewal};
use tokio::time::Instant;

use crate::config::EtcdConfig;
use crate::connection::Connection;
use crate::error::Failure;
use crate::lease::EtcdLease;
use crate::queue::{Blocker, Contender, QueuePosition, directory, queue_position};
use crate::server_lease::{ServerLease, whole_seconds};

pub(crate) struct Store {
    pub(crate) engine: Engine,
    pub(crate) config: EtcdConfig,
    pub(crate) connection: Arc<Connection>,
    /// By their ttl in seconds.
    shared: Mutex<HashMap<u64, Arc<ServerLease>>>,
    granting: tokio::sync::Mutex<()>,
    leases: Mutex<HashMap<LeaseId, Weak<EtcdLease>>>,
}

/// The contenders of a key, as they were at one moment after the request for them left.
#[derive(Debug)]
pub(crate) struct Listing {
    /// In the order of their creation.
    pub(crate) line: Vec<Contender>,
    pub(crate) revision: i64,
}

impl Store {
    pub(crate) fn new(config: EtcdConfig, engine: Engine) -> Self {
        Self {
            connection: Arc::new(Connection::new(&Arc::new(config.clone()), &engine)),
            config,
            engine,
            shared: Mutex::default(),
            granting: tokio::sync::Mutex::default(),
            leases: Mutex::default(),
        }
    }

    pub(crate) fn directory(&self, key: &LockKey) -> String {
        directory(&self.config.prefix, key)
    }

    /// The time that one request has from now on.
    pub(crate) fn step(&self) -> Instant {
        Instant::now() + self.config.timeout
    }

    /// A lease of etcd for an acquisition. Those that are renewed automatically share one for each ttl;
    /// one that is not would be kept alive by the others.
    pub(crate) async fn lease_for(
        &self,
        request: &AcquireRequest,
        until: Instant,
    ) -> Result<Arc<ServerLease>, Failure> {
        match request.renewal() {
            Renewal::Automatic => self.shared_lease(request.ttl(), until).await,
            _ => self.private_lease(request.ttl(), until).await,
        }
    }

    pub(crate) async fn shared_lease(
        &self,
        ttl: Duration,
        until: Instant,
    ) -> Result<Arc<ServerLease>, Failure> {
        if let Some(lease) = self.fresh(ttl) {
            return Ok(lease);
        }
        let _one_grants = self.granting.lock().await;
        if let Some(lease) = self.fresh(ttl) {
            return Ok(lease);
        }
        let lease = self.private_lease(ttl, until).await?;
        let mut shared = self.shared();
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
    ) -> Result<Arc<ServerLease>, Failure> {
        loop {
            let granted = ServerLease::grant(&self.connection, &self.engine, ttl).await;
            match granted {
                Ok(lease) => return Ok(Arc::new(lease)),
                Err(failure) if failure.is_retryable() || failure.is_of_connection() => {
                    self.connection.pause(until, failure).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The shared lease of a ttl, if enough of it is left for its next renewal to come in time.
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
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<(T, u64), ClientError>>,
    {
        for _ in 0..RENEWALS {
            let keep_alive = lease.keep_alive().await?;
            let (found, term) = self.connection.send(&read).await?;
            if term == keep_alive.term {
                lease.prove(keep_alive.sent);
                return Ok(found);
            }
        }
        Err(Failure::LeaderChanged)
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

    /// Retires the leases of etcd with a lock that its holder has lost and not released, such as one that is
    /// held for too long: the others on it would keep it alive.
    pub(crate) fn retire_left(&self) {
        let leases: Vec<_> = self.leases().values().filter_map(Weak::upgrade).collect();
        let left = leases.iter().filter(|lease| lease.is_left());
        left.for_each(|lease| lease.retire());
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Weak<EtcdLease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contenders of a key, as the cluster has them now.
    pub(crate) async fn list(&self, directory: &str, until: Instant) -> Result<Listing, Failure> {
        let listed = self.connection.retried(until, |client| async move {
            let (listing, _) = list(client, directory).await?;
            Ok(listing)
        });
        listed.await
    }

    /// A contender by its id, wherever it stands.
    pub(crate) async fn find(
        &self,
        directory: &str,
        id: LeaseId,
        until: Instant,
    ) -> Result<Option<Contender>, Failure> {
        let line = self.list(directory, until).await?.line;
        Ok(line
            .into_iter()
            .find(|contender| contender.id() == Some(id)))
    }

    /// Writes what a contender stores, with the lease that it is attached to, if nothing was written
    /// there since a revision. The revision of the write, or what is there.
    pub(crate) async fn replace(
        &self,
        key: &str,
        mod_revision: i64,
        value: &str,
        lease: i64,
    ) -> Result<Result<i64, Option<KeyValue>>, Failure> {
        let txn = Txn::new()
            .when([Compare::mod_revision(key, CompareOp::Equal, mod_revision)])
            .and_then([TxnOp::put(
                key,
                value,
                Some(PutOptions::new().with_lease(lease)),
            )])
            .or_else([TxnOp::get(key, None)]);
        let done = self.connection.txn(txn).await?;
        if done.succeeded() {
            return Ok(Ok(revision(done.header())));
        }
        let found = gets(&done).pop();
        Ok(Err(found.and_then(|mut found| found.take_kvs().pop())))
    }
}

/// How often a lease is renewed at once while leaders change.
const RENEWALS: usize = 3;

/// The contenders of a key, and the term of the server that answers.
pub(crate) async fn list(
    mut client: Client,
    directory: &str,
) -> Result<(Listing, u64), ClientError> {
    let found = client.get(directory, Some(in_line())).await?;
    let term = term(found.header());
    Ok((Listing::of(&found, directory), term))
}

/// All keys of a directory in the order of their creation.
pub(crate) fn in_line() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
}

impl Listing {
    /// The same after the end of a blocker, if the contender of this name holds the lock then: nobody comes
    /// before it any more.
    pub(crate) fn without(&self, blocker: &Blocker, name: &str) -> Option<Self> {
        let Blocker::End(ended) = blocker else {
            return None;
        };
        let line = self.line.iter().filter(|other| other.name != *ended);
        let line: Vec<_> = line.cloned().collect();
        (queue_position(&line, name) == QueuePosition::Holds).then_some(Self {
            line,
            revision: self.revision,
        })
    }

    pub(crate) fn of(found: &GetResponse, directory: &str) -> Self {
        let contender = |stored: &KeyValue| {
            let key = String::from_utf8_lossy(stored.key());
            let name = key.strip_prefix(directory).unwrap_or(&key);
            Contender::read(name, stored)
        };
        Self {
            line: found.kvs().iter().map(contender).collect(),
            revision: revision(found.header()),
        }
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

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
