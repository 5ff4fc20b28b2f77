//! Records that holders store beside a lock: a separate key with a lease of etcd of its own.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use polylock_core::LockKey;
use polylock_core::admin::Record;

use crate::error::EtcdFailure;
use crate::store::EtcdStore;

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
        let lease = self.private_lease(keep, self.step()).await?;
        // The record ends with it, and not before.
        lease.retire();
        loop {
            let mod_revision = match self.stored_record(&path).await? {
                Some((_, found)) if found.token > record.token => return Ok(false),
                Some((mod_revision, _)) => mod_revision,
                None => 0,
            };
            let options = PutOptions::new().with_lease(lease.id);
            let unchanged = Compare::mod_revision(path.as_str(), CompareOp::Equal, mod_revision);
            let put = TxnOp::put(path.as_str(), record.encode(), Some(options));
            let txn = Txn::new().when([unchanged]).and_then([put]);
            let written = self.connection.txn(txn).await?;
            if written.succeeded() {
                return Ok(true);
            }
        }
    }

    /// A record and when it was written.
    async fn stored_record(&self, path: &str) -> Result<Option<(i64, Record)>, EtcdFailure> {
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
        Ok(Some((stored.mod_revision(), record)))
    }

    /// No directory of a lock has such a name.
    fn record_path(&self, key: &LockKey) -> String {
        format!("{}/={}", self.config.prefix, LockKey::escape(key.as_str()))
    }
}
