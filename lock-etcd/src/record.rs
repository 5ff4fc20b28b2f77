//! Records that holders store beside a lock: a separate key with a lease of etcd of its own.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use polylock_core::LockKey;
use polylock_core::admin::Record;
use polylock_core::engine::Engine;
use tokio::time::{Instant, sleep};

use crate::connection::EtcdConnection;
use crate::error::EtcdFailure;
use crate::server_lease::{ServerLease, whole_seconds};
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
            let lease = self.record_lease(&path, keep).await?;
            let options = PutOptions::new().with_lease(lease.id);
            let unchanged = Compare::mod_revision(path.as_str(), CompareOp::Equal, mod_revision);
            let put = TxnOp::put(path.as_str(), record.encode(), Some(options));
            let read = TxnOp::get(path.as_str(), None);
            let txn = Txn::new().when([unchanged]).and_then([put]).or_else([read]);
            let written = self.connection.txn(txn).await?;
            if written.succeeded() {
                let attached = lease.id;
                lease.settle(attached);
                if former != NO_LEASE {
                    ServerLease::revoke(&self.connection, &self.engine, former);
                }
                return Ok(true);
            }
            // Not after the next read, which may fail. A copy of this request may have written the record.
            let found = gets(&written).pop();
            let found = found.and_then(|mut found| found.take_kvs().pop());
            lease.settle(found.map_or(NO_LEASE, |found| found.lease()));
        }
    }

    /// A lease for the record at this path.
    async fn record_lease(&self, path: &str, keep: Duration) -> Result<RecordLease, EtcdFailure> {
        // Armed before the request is sent.
        let lease = RecordLease::new(self, path);
        let seconds = i64::try_from(whole_seconds(keep)).unwrap_or(i64::MAX);
        let granted = self
            .connection
            .retried(self.step(), |mut client| async move {
                let options = LeaseGrantOptions::new().with_id(lease.id);
                client.lease_grant(seconds, Some(options)).await
            });
        match granted.await {
            Ok(_) => Ok(lease),
            // An earlier attempt has been granted, and its reply was lost.
            Err(failure) if failure.is_granted() => Ok(lease),
            // A lease without keys is no record, even if it was granted.
            Err(failure) if failure.is_full() => Err(failure.without_effect()),
            Err(failure) => Err(failure),
        }
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

/// The lease of a record that is being written. Unless it is settled, it is revoked once a read shows that the
/// record is not attached to it: it would stay for as long as the record is to be kept.
struct RecordLease {
    /// Chosen here, because the reply to the grant may be lost.
    id: i64,
    path: String,
    connection: Arc<EtcdConnection>,
    engine: Engine,
    is_settled: bool,
}

impl RecordLease {
    fn new(store: &EtcdStore, path: &str) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *store.engine.lease_id().as_bytes();
        // Positive, as those that etcd chooses.
        let id = i64::from_be_bytes([a & 0x7f, b, c, d, e, f, g, h | 1]);
        Self {
            id,
            path: path.to_owned(),
            connection: Arc::clone(&store.connection),
            engine: store.engine.clone(),
            is_settled: false,
        }
    }

    /// The record is known to be attached to the lease `attached`.
    fn settle(mut self, attached: i64) {
        self.is_settled = true;
        if self.id != attached {
            ServerLease::revoke(&self.connection, &self.engine, self.id);
        }
    }
}

impl Drop for RecordLease {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (id, path) = (self.id, std::mem::take(&mut self.path));
        let (connection, engine) = (Arc::clone(&self.connection), self.engine.clone());
        self.engine.spawn(async move {
            let until = Instant::now() + SETTLING;
            while Instant::now() < until {
                let path = path.as_str();
                let settled = connection.send(|mut client| async move {
                    let found = client.get(path, None).await?;
                    if found.kvs().first().map(KeyValue::lease) != Some(id) {
                        // A write that is still under way fails without it.
                        client.lease_revoke(id).await?;
                    }
                    Ok(())
                });
                if let Ok(()) | Err(EtcdFailure::LeaseGone) = settled.await {
                    return;
                }
                sleep(engine.jitter(SETTLING / 120, SETTLING / 60)).await;
            }
            tracing::debug!(
                lease = id,
                "the lease of a record that was not written stays"
            );
        });
    }
}

/// How long a read is repeated that shows whether a record has a lease.
const SETTLING: Duration = Duration::from_secs(60);
