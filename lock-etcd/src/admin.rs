use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use polylock_core::admin::{HolderInfo, LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::{LeaseId, before};
use polylock_core::{
    Error, FencingToken, Label, LeaseState, LockKey, LostReason, Mode, Released, Result,
};
use tokio::sync::{mpsc, oneshot};

use crate::error::Failure;
use crate::lease::{EtcdLease, KnownKey};
use crate::lock::NAME;
use crate::queue::{Contender, encode, holders, split};
use crate::server_lease::ServerLease;
use crate::store::{Store, revision};

/// The administration of the locks of a cluster.
pub(crate) struct Admin {
    store: Arc<Store>,
}

/// How many keys of contenders one request reads.
const PAGE: i64 = 1000;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Admin {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.bound(held(&self.store, prefix)).await.map_err(named)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let inspected = self.bound(self.inspected(key)).await;
        inspected.map_err(|failure| named(failure).with_key(key))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let broken = self.bound(self.delete_holders(key)).await;
        let broken = broken.map_err(|failure| named(failure).with_key(key))?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    /// A watch of etcd would be faster, but would notify this client of every contender that comes and
    /// goes.
    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (store, prefix) = (Arc::clone(&self.store), prefix.to_owned());
        watch_by_polling(move || {
            let (store, prefix) = (Arc::clone(&store), prefix.clone());
            async move { held(&store, &prefix).await.map_err(named) }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let renewed = self.bound(self.renew(key, id, ttl)).await;
        renewed.map_err(|failure| named(failure).with_key(key))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let released = self.bound(async {
            let directory = self.store.directory(key);
            let found = self.store.find(&directory, id, self.store.step()).await?;
            let Some(found) = found else {
                return Ok(Released::AlreadyLost);
            };
            let path = format!("{directory}{}", found.name);
            Ok(match self.store.delete(&path, id).await? {
                true => Released::Clean,
                false => Released::AlreadyLost,
            })
        });
        released
            .await
            .map_err(|failure| named(failure).with_key(key))
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let adopted = self.bound(async {
            let adoption = Adoption { key, id, new, ttl };
            let adopted = self.adopt_as(&adoption, |lease| lease.retire()).await?;
            Ok(adopted.and_then(|(contender, _)| contender.token()))
        });
        adopted
            .await
            .map_err(|failure| named(failure).with_key(key))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        let record = self.bound(self.store.read_record(key)).await;
        record.map_err(|failure| named(failure).with_key(key))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        let checked = record.check();
        checked.map_err(|error| error.with_backend(NAME).with_key(key))?;
        let written = self.bound(self.store.put_record(key, record, keep)).await;
        written.map_err(|failure| named(failure).with_key(key))
    }
}

fn named(failure: Failure) -> Error {
    Error::from(failure).with_backend(NAME)
}

/// A holder that is to get another id.
struct Adoption<'a> {
    key: &'a LockKey,
    id: LeaseId,
    new: LeaseId,
    ttl: Duration,
}

impl Admin {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self {
            store: Arc::clone(store),
        }
    }

    /// Bounds a request of an administrator.
    async fn bound<T>(
        &self,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let answer = before(self.store.step(), request).await;
        answer.unwrap_or_else(|| Err(Failure::Silent(self.store.config.timeout)))
    }

    async fn inspected(&self, key: &LockKey) -> Result<Option<LockInfo>, Failure> {
        let contenders = self.contenders(key).await?;
        let Some(mut info) = info(key.clone(), &contenders) else {
            return Ok(None);
        };
        for (holder, contender) in info.holders.iter_mut().zip(&contenders) {
            holder.time_left = self.store.time_left(contender.lease).await?;
        }
        Ok(Some(info))
    }

    async fn contenders(&self, key: &LockKey) -> Result<Vec<Contender>, Failure> {
        let directory = self.store.directory(key);
        Ok(self
            .store
            .list(&directory, self.store.step())
            .await?
            .contenders)
    }

    /// Deletes the keys of the present holders, and not of the next one.
    async fn delete_holders(&self, key: &LockKey) -> Result<Option<LockInfo>, Failure> {
        let (contenders, directory) = (self.contenders(key).await?, self.store.directory(key));
        let Some(info) = info(key.clone(), &contenders) else {
            return Ok(None);
        };
        for holder in &contenders[..info.holders.len()] {
            let path = format!("{directory}{}", holder.name);
            let is_there =
                Compare::create_revision(path.as_str(), CompareOp::Equal, holder.create_revision);
            let txn = Txn::new()
                .when([is_there])
                .and_then([TxnOp::delete(path, None)]);
            // To delete it once more changes nothing.
            let deleted = self
                .store
                .connection
                .retried(self.store.step(), |mut client| {
                    let txn = txn.clone();
                    async move { client.txn(txn).await }
                });
            deleted.await?;
        }
        Ok(Some(info))
    }

    async fn renew(
        &self,
        key: &LockKey,
        id: LeaseId,
        ttl: Duration,
    ) -> Result<LeaseState, Failure> {
        let directory = self.store.directory(key);
        loop {
            let found = self.store.find(&directory, id, self.store.step()).await?;
            let Some(Contender {
                name,
                entry: Some(entry),
                mod_revision,
                lease,
                ..
            }) = found
            else {
                return Ok(LeaseState::Lost(LostReason::Stolen));
            };
            if self.store.time_left(lease).await? > Some(ttl) {
                return Ok(LeaseState::Held);
            }
            let lease = self.store.private_lease(ttl, self.store.step()).await?;
            // From here on, the key may be attached to this lease, which is not kept alive.
            lease.retire();
            let (path, value) = (format!("{directory}{name}"), entry.encode());
            let replaced = self.store.replace(&path, mod_revision, &value, lease.id);
            if replaced.await?.is_ok() {
                return Ok(LeaseState::Held);
            }
        }
    }

    /// Adopts a lease for an acquisition of this client, on the engine, so that a release can wait for the
    /// outcome even if the caller is dropped.
    pub(crate) async fn adopt(
        &self,
        key: &LockKey,
        id: LeaseId,
        lease: &Arc<EtcdLease>,
    ) -> Result<Option<FencingToken>, Failure> {
        let (done, answer) = oneshot::channel();
        let (admin, key, lease) = (Self::new(&self.store), key.clone(), Arc::clone(lease));
        let under_way = lease.begin_adoption();
        self.store.engine.spawn(async move {
            let adopted = admin.try_adopt(&key, id, &lease).await;
            drop(under_way);
            drop(done.send(adopted));
        });
        let panicked = Failure::Protocol("the task of an adoption has panicked");
        answer.await.unwrap_or(Err(panicked))
    }

    async fn try_adopt(
        &self,
        key: &LockKey,
        id: LeaseId,
        lease: &Arc<EtcdLease>,
    ) -> Result<Option<FencingToken>, Failure> {
        let adoption = Adoption {
            key,
            id,
            new: lease.id,
            ttl: lease.ttl,
        };
        // An earlier request without an answer may still come.
        let was_unknown = matches!(lease.key(), KnownKey::Unknown);
        let begin = |attached: &Arc<ServerLease>| lease.may_be_adopted(attached);
        match self.adopt_as(&adoption, begin).await? {
            Some((contender, attached)) => {
                lease.adopted(&contender, attached);
                Ok(contender.token())
            }
            None => {
                if !was_unknown {
                    lease.was_not_adopted();
                }
                Ok(None)
            }
        }
    }

    /// Gives an exclusive holder another id. `begin` is called before the write is sent, with the lease of
    /// etcd that the key may be attached to from there on.
    async fn adopt_as(
        &self,
        adoption: &Adoption<'_>,
        begin: impl Fn(&Arc<ServerLease>),
    ) -> Result<Option<(Contender, Arc<ServerLease>)>, Failure> {
        let directory = self.store.directory(adoption.key);
        loop {
            let contenders = self.contenders(adoption.key).await?;
            let Some(mut held) = contenders.into_iter().next() else {
                return Ok(None);
            };
            // A repeated adoption finds the id that it has given.
            let is_repeated = held.id() == Some(adoption.new);
            let is_it = is_repeated || held.id() == Some(adoption.id);
            let Some(entry) = held.entry.as_mut().filter(|_| is_it) else {
                return Ok(None);
            };
            if entry.mode != Mode::Exclusive {
                return Ok(None);
            }
            entry.id = adoption.new;
            if !is_repeated {
                let next = entry.adoptions.checked_add(1);
                entry.adoptions = next.ok_or(Failure::AdoptedTooOften)?;
            }
            let value = entry.encode();
            let lease = self
                .store
                .private_lease(adoption.ttl, self.store.step())
                .await?;
            begin(&lease);
            let path = format!("{directory}{}", held.name);
            let replaced = self
                .store
                .replace(&path, held.mod_revision, &value, lease.id);
            if let Ok(revision) = replaced.await? {
                held.mod_revision = revision;
                held.lease = lease.id;
                return Ok(Some((held, lease)));
            }
        }
    }
}

/// What is held under a prefix, sorted by key, as it was at one moment.
async fn held(store: &Store, prefix: &str) -> Result<Vec<LockInfo>, Failure> {
    let root = &store.config.prefix;
    let mut from = format!("{root}/{}", encode(prefix)).into_bytes();
    let end = prefix_end(&from);
    let mut at = 0;
    let mut contenders = Vec::new();
    loop {
        let options = GetOptions::new()
            .with_range(end.clone())
            .with_limit(PAGE)
            .with_revision(at);
        let page = store.connection.retried(store.step(), |mut client| {
            let (from, options) = (from.clone(), options.clone());
            async move { client.get(from, Some(options)).await }
        });
        let page = page.await?;
        at = revision(page.header());
        for stored in page.kvs() {
            let path = String::from_utf8_lossy(stored.key());
            if let Some((key, name)) = split(root, &path) {
                contenders.push((key, Contender::read(name, stored)));
            }
        }
        match page.kvs().last() {
            Some(last) if page.more() => from = [last.key(), b"\0"].concat(),
            _ => break,
        }
    }
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

/// The first key behind all that begin with a prefix, which ends with an ASCII character.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A lock as its contenders show it; `None` if it is free.
fn info(key: LockKey, contenders: &[Contender]) -> Option<LockInfo> {
    let (holding, waiting) = contenders.split_at(holders(contenders));
    let first = holding.first()?;
    let holder = |contender: &Contender| {
        let mut holder = HolderInfo::new(contender.label());
        holder.token = contender.token();
        holder
    };
    let info = LockInfo::new(key, first.mode(), holding.iter().map(holder).collect());
    let waiters: Vec<Label> = waiting.iter().map(Contender::label).collect();
    Some(info.with_waiters(waiters))
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
