//! Records that holders store beside a lock: a separate key with a lease of etcd of its own.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use polylock_core::LockKey;
use polylock_core::admin::Record;

use crate::error::EtcdFailure;
use crate::server_lease::ServerLease;
use crate::store::EtcdStore;

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
            let (mod_revision, former) = match self.stored_record(&path).await? {
                Some((_, found)) if found.token > record.token => return Ok(false),
                Some((stored, _)) => (stored.mod_revision(), stored.lease()),
                None => (0, NO_LEASE),
            };
            let lease = self.private_lease(keep, self.step()).await?;
            // From here on, the record may be attached to this lease, and is to end with it.
            lease.retire();
            let options = PutOptions::new().with_lease(lease.id);
            let unchanged = Compare::mod_revision(path.as_str(), CompareOp::Equal, mod_revision);
            let put = TxnOp::put(path.as_str(), record.encode(), Some(options));
            let txn = Txn::new().when([unchanged]).and_then([put]);
            let written = match self.connection.txn(txn).await {
                Err(failure) if !failure.is_ambiguous() => {
                    ServerLease::revoke(&self.connection, &self.engine, lease.id);
                    return Err(failure);
                }
                written => written?,
            };
            // Nothing is attached to the lease of a record that was replaced, or was not written.
            let unused = match written.succeeded() {
                true => former,
                false => lease.id,
            };
            if unused != NO_LEASE {
                ServerLease::revoke(&self.connection, &self.engine, unused);
            }
            if written.succeeded() {
                return Ok(true);
            }
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
