//! Records that holders store beside a lock: a separate key with a lease of etcd of its own.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use polylock_core::LockKey;
use polylock_core::admin::Record;

use crate::error::EtcdFailure;
use crate::server_lease::ServerLease;
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
            let lease = self.private_lease(keep, self.step()).await?;
            // From here on, the record may be attached to this lease, and is to end with it.
            lease.retire();
            let options = PutOptions::new().with_lease(lease.id);
            let unchanged = Compare::mod_revision(path.as_str(), CompareOp::Equal, mod_revision);
            let put = TxnOp::put(path.as_str(), record.encode(), Some(options));
            let read = TxnOp::get(path.as_str(), None);
            let txn = Txn::new().when([unchanged]).and_then([put]).or_else([read]);
            let written = match self.connection.txn(txn).await {
                Err(failure) if !failure.is_ambiguous() => {
                    self.revoke_unused(lease.id);
                    return Err(failure);
                }
                written => written?,
            };
            if written.succeeded() {
                self.revoke_unused(former);
                return Ok(true);
            }
            // Not after the next read, which may fail. A copy of this request may have written the record.
            let found = gets(&written).pop();
            let found = found.and_then(|mut found| found.take_kvs().pop());
            if found.is_none_or(|found| found.lease() != lease.id) {
                self.revoke_unused(lease.id);
            }
        }
    }

    /// Revokes a lease that nothing is attached to, if there is one.
    fn revoke_unused(&self, lease: i64) {
        if lease != NO_LEASE {
            ServerLease::revoke(&self.connection, &self.engine, lease);
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
