use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use polylock_core::admin::{HolderInfo, LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::{LeaseId, Queued as _, before, queue_holders};
use polylock_core::{
    Error, FencingToken, Label, LeaseState, LockKey, LostReason, Released, Result,
};
use tokio::sync::mpsc;

use crate::connection::kv;
use crate::error::EtcdFailure;
use crate::lock::NAME;
use crate::queue::{EtcdContender, split};
use crate::server_lease::ServerLease;
use crate::store::{EtcdStore, list, revision};

/// The administration of the locks of a cluster.
#[derive(Debug)]
pub(crate) struct Admin(pub(crate) Arc<EtcdStore>);

/// How many keys of contenders one request reads.
const PAGE: i64 = 1000;

/// Max attempts of a list whose revision is compacted while it is read.
const MAX_LIST_ATTEMPTS: u32 = 5;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Admin {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.0.bound(None, self.0.held(prefix)).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        self.0.bound(Some(key), self.0.inspected(key)).await
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let may_be_broken = AtomicBool::new(false);
        let broken = self.0.delete_holders(key, &may_be_broken);
        let broken = self.0.bound(Some(key), broken).await;
        let broken = broken.map_err(|error| match may_be_broken.into_inner() {
            true => error.with_unknown_outcome(),
            false => error,
        })?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    /// A watch of etcd would be faster, but would notify this client of every contender that comes and
    /// goes.
    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (store, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        watch_by_polling(move || {
            let (store, prefix) = (Arc::clone(&store), prefix.clone());
            // Each page of a long listing has its own time.
            async move {
                store
                    .held(&prefix)
                    .await
                    .map_err(|failure| Error::from(failure).with_backend(NAME))
            }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        self.0
            .bound(Some(key), self.0.renew_by_id(key, id, ttl))
            .await
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let released = async {
            let directory = self.0.directory(key);
            let found = self.0.find(&directory, id, self.0.step()).await?;
            let Some(found) = found else {
                return Ok(Released::AlreadyLost);
            };
            let path = format!("{directory}{}", found.name);
            Ok(match self.0.delete(&path, id).await? {
                true => Released::Clean,
                false => Released::AlreadyLost,
            })
        };
        self.0.bound(Some(key), released).await
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let retire = |lease: &Arc<ServerLease>| lease.retire();
        let directory = self.0.directory(key);
        let adopted = self.0.adopt_as(&directory, id, new, ttl, retire);
        let adopted = self.0.bound(Some(key), adopted).await?;
        Ok(adopted.and_then(|(contender, _)| contender.token()))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        self.0.bound(Some(key), self.0.read_record(key)).await
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        let checked = record.check();
        checked.map_err(|error| error.with_backend(NAME).with_key(key))?;
        self.0
            .bound(Some(key), self.0.put_record(key, record, keep))
            .await
    }
}

impl EtcdStore {
    /// Bounds a request of an administrator, and names the lock in its error.
    async fn bound<T>(
        &self,
        key: Option<&LockKey>,
        request: impl Future<Output = Result<T, EtcdFailure>>,
    ) -> Result<T> {
        let answer = before(self.step(), request).await;
        let answer = answer.unwrap_or(Err(EtcdFailure::Silent(self.config.timeout)));
        answer.map_err(|failure| {
            let error = Error::from(failure).with_backend(NAME);
            match key {
                Some(key) => error.with_key(key),
                None => error,
            }
        })
    }

    /// What is held under a prefix, sorted by key, as it was at one moment.
    async fn held(&self, prefix: &str) -> Result<Vec<LockInfo>, EtcdFailure> {
        let mut reads = 1;
        let mut contenders = loop {
            match self.contenders_below(prefix).await {
                Err(failure) if failure.is_compacted() && reads < MAX_LIST_ATTEMPTS => reads += 1,
                read => break read?,
            }
        };
        // By key, in the order of their creation.
        contenders.sort_by(|(key, own), (other, another)| {
            key.cmp(other)
                .then(own.create_revision.cmp(&another.create_revision))
        });
        let locks = contenders.chunk_by(|(key, _), (other, _)| key == other);
        let locks = locks.filter_map(|lock| {
            let queue: Vec<_> = lock
                .iter()
                .map(|(_, contender)| contender.clone())
                .collect();
            info(lock[0].0.clone(), &queue)
        });
        Ok(locks.collect())
    }

    /// The contenders of all locks under a prefix, as they were at one moment. Fails if that is compacted before the
    /// last of several replies.
    async fn contenders_below(
        &self,
        prefix: &str,
    ) -> Result<Vec<(LockKey, EtcdContender)>, EtcdFailure> {
        let root = &self.config.prefix;
        let mut from = format!("{root}/{}", LockKey::escape(prefix)).into_bytes();
        let end = prefix_end(&from);
        let mut at = 0;
        let mut contenders = Vec::new();
        loop {
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE)
                .with_revision(at);
            let page = self.connection.retried(self.step(), |client| {
                let (mut client, from, options) = (kv(&client), from.clone(), options.clone());
                async move { client.get(from, Some(options)).await }
            });
            let page = page.await?;
            if at == 0 {
                // Later pages are of the same revision; their headers have the revision of the moment.
                at = revision(page.header());
            }
            for stored in page.kvs() {
                let path = String::from_utf8_lossy(stored.key());
                if let Some((key, name)) = split(root, &path) {
                    contenders.push((key, EtcdContender::read(name, stored)));
                }
            }
            match page.kvs().last() {
                Some(last) if page.more() => from = [last.key(), b"\0"].concat(),
                _ => return Ok(contenders),
            }
        }
    }

    async fn inspected(&self, key: &LockKey) -> Result<Option<LockInfo>, EtcdFailure> {
        let contenders = self.contenders(key).await?;
        let Some(mut info) = info(key.clone(), &contenders) else {
            return Ok(None);
        };
        for (holder, contender) in info.holders.iter_mut().zip(&contenders) {
            let known = self.time_left(contender.lease).await?;
            holder.time_left = known.map(|(left, _)| left);
        }
        Ok(Some(info))
    }

    async fn contenders(&self, key: &LockKey) -> Result<Vec<EtcdContender>, EtcdFailure> {
        let directory = self.directory(key);
        let listing = self.list(&directory, self.step()).await?;
        Ok(listing.contenders)
    }

    /// Deletes the keys of the present holders, and returns the lock with those whose keys it has deleted. If all
    /// of them were gone by themselves, the next ones are present. Sets `may_be_broken` once one of them may have
    /// lost the lock.
    async fn delete_holders(
        &self,
        key: &LockKey,
        may_be_broken: &AtomicBool,
    ) -> Result<Option<LockInfo>, EtcdFailure> {
        let directory = self.directory(key);
        loop {
            let contenders = self.contenders(key).await?;
            let Some(mut info) = info(key.clone(), &contenders) else {
                return Ok(None);
            };
            let mut broken = Vec::new();
            for (holder, contender) in std::mem::take(&mut info.holders)
                .into_iter()
                .zip(&contenders)
            {
                let deleted = self.delete_holder(&directory, contender, may_be_broken);
                if deleted.await? {
                    broken.push(holder);
                }
            }
            if !broken.is_empty() {
                info.holders = broken;
                return Ok(Some(info));
            }
        }
    }

    /// Deletes the key of a holder. False if it was gone before; true also if a deletion without a reply may have
    /// deleted it.
    async fn delete_holder(
        &self,
        directory: &str,
        holder: &EtcdContender,
        may_be_broken: &AtomicBool,
    ) -> Result<bool, EtcdFailure> {
        let path = format!("{directory}{}", holder.name);
        let is_there =
            Compare::create_revision(path.as_str(), CompareOp::Equal, holder.create_revision);
        let txn = Txn::new()
            .when([is_there])
            .and_then([TxnOp::delete(path, None)]);
        let (until, mut is_perhaps_deleted) = (self.step(), false);
        loop {
            // To delete it once more changes nothing.
            let done = self.connection.txn(txn.clone()).await;
            is_perhaps_deleted |= match &done {
                Ok(done) => done.succeeded(),
                Err(failure) => failure.is_ambiguous(),
            };
            if is_perhaps_deleted {
                may_be_broken.store(true, Ordering::Relaxed);
            }
            match done {
                Ok(_) => return Ok(is_perhaps_deleted),
                Err(failure) => {
                    self.connection.pause(until, failure).await?;
                }
            }
        }
    }

    async fn renew_by_id(
        &self,
        key: &LockKey,
        id: LeaseId,
        ttl: Duration,
    ) -> Result<LeaseState, EtcdFailure> {
        let directory = self.directory(key);
        loop {
            let found = self.find(&directory, id, self.step()).await?;
            let Some(EtcdContender {
                name,
                entry: Some(entry),
                mod_revision,
                lease,
                ..
            }) = found
            else {
                return Ok(LeaseState::Lost(LostReason::Stolen));
            };
            let known = self.time_left(lease).await?;
            let (left, whole) = known.unwrap_or_default();
            if left > ttl {
                return Ok(LeaseState::Held);
            }
            // A live holder may renew its lease until the key is moved, which no comparison shows, and then counts
            // on the whole of it.
            let lease = self.private_lease(ttl.max(whole), self.step()).await?;
            // From here on, the key may be attached to this lease, which is not kept alive.
            lease.retire();
            let (path, value) = (format!("{directory}{name}"), entry.encode());
            let replaced = self.replace_once(&path, mod_revision, &value, &lease);
            if replaced.await?.is_ok() {
                // A holder leaves a tenth of its lease unused.
                if lease.age() > whole / 10 {
                    self.renewed(&lease, |client| list(client, &directory))
                        .await?;
                }
                return Ok(LeaseState::Held);
            }
        }
    }
}

/// The first key behind all that begin with a prefix, which ends with an ASCII character.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A lock as its contenders show it; `None` if it is free.
fn info(key: LockKey, contenders: &[EtcdContender]) -> Option<LockInfo> {
    let (holding, waiting) = contenders.split_at(queue_holders(contenders));
    let first = holding.first()?;
    let holder = |contender: &EtcdContender| {
        let mut holder = HolderInfo::new(contender.label());
        holder.token = contender.token();
        holder
    };
    let info = LockInfo::new(key, first.mode(), holding.iter().map(holder).collect());
    let waiters: Vec<Label> = waiting.iter().map(EtcdContender::label).collect();
    Some(info.with_waiters(waiters))
}
