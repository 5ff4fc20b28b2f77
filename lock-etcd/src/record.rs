//! Records that holders store beside a lock: a separate key with a lease of etcd of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use polylock_core::LockKey;
use polylock_core::admin::Record;
use polylock_core::engine::Engine;
use tokio::time::{Instant, sleep};

use crate::connection::{EtcdConnection, SERVER_TIMEOUT};
use crate::error::EtcdFailure;
use crate::server_lease::whole_seconds;
use crate::store::{EtcdStore, gets};

/// What a key without a lease has in place of one.
const NO_LEASE: i64 = 0;

impl EtcdStore {
    pub(crate) async fn read_record(&self, key: &LockKey) -> Result<Option<Record>, EtcdFailure> {
        let stored = self.stored_record(&self.record_path(key)).await?;
        Ok(stored.map(|(_, record)| record))
    }

    /// Stores a record, unless that of a later holder is there.
    pub(crate) async fn put_record(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, EtcdFailure> {
        let path = self.record_path(key);
        loop {
            let stored = self.stored_record(&path).await?;
            let (mod_revision, former) = match &stored {
                Some((stored, _)) => (stored.mod_revision(), stored.lease()),
                None => (0, NO_LEASE),
            };
            if stored.is_some_and(|(_, found)| found.token > record.token) {
                return Ok(false);
            }
            let lease = self.record_lease(&path, keep, former).await?;
            let options = PutOptions::new().with_lease(lease.id());
            let unchanged = Compare::mod_revision(path.as_str(), CompareOp::Equal, mod_revision);
            let put = TxnOp::put(path.as_str(), record.encode(), Some(options));
            let read = TxnOp::get(path.as_str(), None);
            let txn = Txn::new().when([unchanged]).and_then([put]).or_else([read]);
            let written = self.connection.txn(txn).await?;
            if written.succeeded() {
                let attached = lease.id();
                lease.settle(attached);
                return Ok(true);
            }
            // Not after the next read, which may fail. A copy of this request may have written the record.
            let found = gets(&written).pop();
            let found = found.and_then(|mut found| found.take_kvs().pop());
            lease.settle(found.map_or(NO_LEASE, |found| found.lease()));
        }
    }

    /// A lease for the record at this path, in place of that of the former record.
    async fn record_lease(
        &self,
        path: &str,
        keep: Duration,
        former: i64,
    ) -> Result<RecordLease, EtcdFailure> {
        // Armed before the request is sent.
        let lease = RecordLease::new(self, path, former);
        let id = lease.id();
        let seconds = i64::try_from(whole_seconds(keep)).unwrap_or(i64::MAX);
        let granted = self
            .connection
            .retried(self.step(), |mut client| async move {
                let options = LeaseGrantOptions::new().with_id(id);
                client.lease_grant(seconds, Some(options)).await
            });
        match granted.await {
            Ok(_) => {}
            // An earlier attempt has been granted, and its reply was lost.
            Err(failure) if failure.is_granted() => {}
            // A lease without keys is no record, even if it was granted.
            Err(failure) if failure.is_full() => return Err(failure.without_effect()),
            Err(failure) => return Err(failure),
        }
        lease.write.is_granted.store(true, Ordering::Relaxed);
        Ok(lease)
    }

    /// A record, and the key that has it.
    async fn stored_record(&self, path: &str) -> Result<Option<(KeyValue, Record)>, EtcdFailure> {
        let read = self
            .connection
            .retried(self.step(), |mut client| async move {
                client.get(path, None).await
            });
        let found = read.await?;
        let Some(stored) = found.kvs().first() else {
            return Ok(None);
        };
        let record =
            Record::decode(stored.value()).ok_or_else(|| EtcdFailure::Foreign(path.to_owned()))?;
        Ok(Some((stored.clone(), record)))
    }

    /// No directory of a lock has such a name.
    fn record_path(&self, key: &LockKey) -> String {
        format!("{}/={}", self.config.prefix, LockKey::escape(key.as_str()))
    }
}

/// The lease of a record that is being written.
///
/// One that no record is attached to would stay for as long as the record is to be kept. So it is revoked unless
/// the record has it; then that of the former record is.
struct RecordLease {
    write: Arc<RecordWrite>,
    is_settled: bool,
}

struct RecordWrite {
    path: String,
    /// Chosen here, because the reply to the grant may be lost.
    id: i64,
    is_granted: AtomicBool,
    /// The lease of the record that is replaced.
    former: i64,
    connection: Arc<EtcdConnection>,
    engine: Engine,
}

impl RecordLease {
    fn new(store: &EtcdStore, path: &str, former: i64) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *store.engine.lease_id().as_bytes();
        let write = RecordWrite {
            path: path.to_owned(),
            // Positive, as those that etcd chooses.
            id: i64::from_be_bytes([a & 0x7f, b, c, d, e, f, g, h | 1]),
            is_granted: AtomicBool::new(false),
            former,
            connection: Arc::clone(&store.connection),
            engine: store.engine.clone(),
        };
        Self {
            write: Arc::new(write),
            is_settled: false,
        }
    }

    fn id(&self) -> i64 {
        self.write.id
    }

    /// The record is known to be attached to the lease `attached`.
    fn settle(mut self, attached: i64) {
        self.is_settled = true;
        if attached != self.id() || self.write.former != NO_LEASE {
            self.finish(Some(attached));
        }
    }

    fn finish(&self, attached: Option<i64>) {
        let write = Arc::clone(&self.write);
        self.write
            .engine
            .spawn(async move { write.finish(attached).await });
    }
}

/// The outcome is not known, or nobody waits for it.
impl Drop for RecordLease {
    fn drop(&mut self) {
        if !self.is_settled {
            self.finish(None);
        }
    }
}

impl RecordWrite {
    /// Revokes the lease that no record needs, in the background.
    async fn finish(&self, attached: Option<i64>) {
        let until = Instant::now() + SETTLING;
        while Instant::now() < until {
            let failure = match self.revoke_unneeded(attached).await {
                Ok(true) => return,
                Ok(false) => continue,
                Err(failure) => failure,
            };
            if !(failure.is_retryable() || failure.is_of_connection()) {
                tracing::debug!(%failure, "the lease of a record stays until it ends");
                return;
            }
            sleep(self.engine.jitter(SETTLING / 120, SETTLING / 60)).await;
        }
        tracing::debug!("the lease of a record stays until it ends: no server answers");
    }

    /// False if the record has changed meanwhile, so that it has to be read again.
    async fn revoke_unneeded(&self, attached: Option<i64>) -> Result<bool, EtcdFailure> {
        let attached = match attached {
            Some(attached) => attached,
            // No record was sent.
            None if !self.is_granted.load(Ordering::Relaxed) => NO_LEASE,
            None => match self.attached().await? {
                Some(attached) => attached,
                None => return Ok(false),
            },
        };
        if attached == self.id {
            self.revoke(self.former).await?;
        } else if !self.revoke(self.id).await? && !self.is_granted.load(Ordering::Relaxed) {
            // The grant may come later.
            sleep(SERVER_TIMEOUT).await;
            self.revoke(self.id).await?;
        }
        Ok(true)
    }

    /// The lease that the record has, from now on: a write of ours that is still under way fails. `None` if
    /// another write has come first.
    async fn attached(&self) -> Result<Option<i64>, EtcdFailure> {
        let path = self.path.as_str();
        let read = self
            .connection
            .send(|mut client| async move { client.get(path, None).await });
        let read = read.await?;
        let Some(found) = read.kvs().first() else {
            // Without a record there is none to lose.
            return Ok(Some(NO_LEASE));
        };
        if found.lease() != self.id {
            let unchanged = Compare::mod_revision(path, CompareOp::Equal, found.mod_revision());
            let same = PutOptions::new().with_ignore_value().with_ignore_lease();
            let touch = Txn::new()
                .when([unchanged])
                .and_then([TxnOp::put(path, "", Some(same))]);
            match self.connection.txn(touch).await {
                Ok(touched) if !touched.succeeded() => return Ok(None),
                Ok(_) => {}
                // A full database refuses the write that is under way as well.
                Err(failure) if failure.is_full() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Some(found.lease()))
    }

    /// Revokes a lease, if there is one; false if the server does not know it.
    async fn revoke(&self, lease: i64) -> Result<bool, EtcdFailure> {
        if lease == NO_LEASE {
            return Ok(false);
        }
        let revoked = self
            .connection
            .send(|mut client| async move { client.lease_revoke(lease).await });
        match revoked.await {
            Ok(_) => Ok(true),
            Err(EtcdFailure::LeaseGone) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// How long it is tried to revoke the lease that no record needs.
const SETTLING: Duration = Duration::from_secs(60);
