use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::join;
use polylock_core::admin::{
    HolderInfo, LockAdmin, LockEvent, LockInfo, Record, watch_holders_by_polling,
};
use polylock_core::engine::{LeaseId, before, queue_holders};
use polylock_core::{Error, ErrorKind, FencingToken, Label, LeaseState, LockKey, Released, Result};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Client as Connection, Error as ClientError, Stat};

use crate::downgrade::noted_token;
use crate::error::{RETRY_BACKOFF, ZkFailure};
use crate::lock::{NAME, ZkClient};
use crate::recipe::directory::{Directory, key_of};
use crate::recipe::names::ZkContender;
use crate::recipe::sequence::{contenders_in_order, created, order_by_creation};
use crate::recipe::tokens::token;
use crate::session::ZkSession;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for ZkClient {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        let held = self.bound(None, self.held(prefix, Depth::Line)).await?;
        Ok(held.into_iter().map(|(key, view)| view.info(key)).collect())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let directory = Directory::of(key);
        let seen = async { view_now(&*self.session().await?, &directory).await };
        let seen = self.bound(Some(key), seen).await?;
        Ok(seen.map(|view| view.info(key.clone())))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let is_in_doubt = AtomicBool::new(false);
        let broken = self.delete_holders(key, &is_in_doubt);
        let broken = self.bound(Some(key), broken).await;
        let broken = broken.map_err(|error| with_doubt(error, is_in_doubt))?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    /// A recursive watch would be faster, but would notify this client of every contender that comes and
    /// goes. Events do not name waiters.
    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (client, prefix) = (self.clone(), prefix.to_owned());
        watch_holders_by_polling(move || {
            let (client, prefix) = (client.clone(), prefix.clone());
            async move {
                let held = client.held(&prefix, Depth::Holders);
                let held = client.bound(None, held).await?.into_iter();
                Ok(held.map(|(key, view)| view.watched(key)).collect())
            }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, _: LeaseId, _: Duration) -> Result<LeaseState> {
        Err(no_lease(key))
    }

    async fn release_lease(&self, key: &LockKey, _: LeaseId) -> Result<Released> {
        Err(no_lease(key))
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        _: LeaseId,
        _: LeaseId,
        _: Duration,
    ) -> Result<Option<FencingToken>> {
        Err(no_lease(key))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        self.bound(Some(key), self.read_record(key)).await
    }

    /// The node stays until it is replaced, whatever `keep` says.
    async fn write_record(&self, key: &LockKey, record: &Record, _: Duration) -> Result<bool> {
        let checked = record.check();
        checked.map_err(|error| error.with_backend(NAME).with_key(key))?;
        let is_in_doubt = AtomicBool::new(false);
        let written = self.put_record(key, record, &is_in_doubt);
        let written = self.bound(Some(key), written).await;
        written.map_err(|error| with_doubt(error, is_in_doubt))
    }
}

fn with_doubt(error: Error, is_in_doubt: AtomicBool) -> Error {
    match is_in_doubt.into_inner() {
        true => error.with_unknown_outcome(),
        false => error,
    }
}

fn no_lease(key: &LockKey) -> Error {
    let message = "a lock of ZooKeeper lives with the session of its holder: no other session renews or \
                   releases it";
    Error::new(ErrorKind::Unsupported, message)
        .with_backend(NAME)
        .with_key(key)
}

impl ZkClient {
    /// Bounds a request of an administrator, and names the lock in its error.
    async fn bound<T>(
        &self,
        key: Option<&LockKey>,
        request: impl Future<Output = Result<T, ZkFailure>>,
    ) -> Result<T> {
        let timeout = self.sessions.config.timeout;
        let answer = before(Instant::now() + timeout, request).await;
        answer
            .unwrap_or(Err(ZkFailure::Silent(timeout)))
            .map_err(|failure| {
                let error = Error::from(failure).with_backend(NAME);
                match key {
                    Some(key) => error.with_key(key),
                    None => error,
                }
            })
    }

    pub(crate) async fn session(&self) -> Result<Arc<ZkSession>, ZkFailure> {
        let deadline = Instant::now() + self.sessions.config.timeout;
        self.sessions.get(deadline).await
    }

    /// What is held under a prefix, sorted by key.
    async fn held(
        &self,
        prefix: &str,
        depth: Depth,
    ) -> Result<Vec<(LockKey, LockView)>, ZkFailure> {
        let session = self.session().await?;
        let names = match session.client.list_children("/").await {
            // The root is deleted: the next acquisition creates it again.
            Err(ClientError::NoNode) => return Ok(Vec::new()),
            listed => listed?,
        };
        let keys = names.iter().filter_map(|name| key_of(name));
        let keys = keys.filter(|key| key.as_str().starts_with(prefix));
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        let mut held = Vec::new();
        for keys in keys.chunks(AT_ONCE) {
            let views = keys
                .iter()
                .map(async |key| LockView::read(&session.client, &Directory::of(key), depth).await);
            for (key, view) in keys.iter().zip(join_all(views).await) {
                held.extend(view?.map(|view| (key.clone(), view)));
            }
        }
        Ok(held)
    }

    /// Deletes the nodes of the present holders, and returns the lock with those whose nodes it has deleted. If
    /// all of them were gone by themselves, the next ones are present. `is_in_doubt` says that a node may be
    /// deleted by then.
    async fn delete_holders(
        &self,
        key: &LockKey,
        is_in_doubt: &AtomicBool,
    ) -> Result<Option<LockInfo>, ZkFailure> {
        let (session, directory) = (self.session().await?, Directory::of(key));
        loop {
            let Some(mut view) = view_now(&session, &directory).await? else {
                return Ok(None);
            };
            let mut broken = Vec::new();
            for holder in std::mem::take(&mut view.holders) {
                let contender = &holder.contender;
                if delete_holder(&session, &directory, contender, is_in_doubt).await? {
                    broken.push(holder);
                }
            }
            if !broken.is_empty() {
                view.holders = broken;
                return Ok(Some(view.info(key.clone())));
            }
        }
    }
}

/// Deletes the node of a holder. False if it was gone before; true also if a deletion without a reply may have
/// deleted it.
async fn delete_holder(
    session: &ZkSession,
    directory: &Directory,
    holder: &ZkContender,
    is_in_doubt: &AtomicBool,
) -> Result<bool, ZkFailure> {
    let mut path = directory.child(&holder.name);
    let mut downgraded = holder.downgraded();
    let mut is_deleted = false;
    loop {
        let deleted = session.client.delete(&path, None).await;
        let deleted = deleted.map_err(ZkFailure::from);
        if deleted
            .as_ref()
            .map_or_else(ZkFailure::is_ambiguous, |()| true)
        {
            is_deleted = true;
            is_in_doubt.store(true, Ordering::Relaxed);
        }
        match deleted {
            Ok(()) => return Ok(is_deleted),
            Err(failure) if failure.is_no_node() => match downgraded.take() {
                // A downgrade may have given the node another name.
                Some(shared) => path = directory.child(&shared.name),
                None => return Ok(is_deleted),
            },
            // Deleting it once more changes nothing.
            Err(failure) if failure.is_ambiguous() => sleep(RETRY_BACKOFF).await,
            Err(failure) => return Err(failure),
        }
    }
}

/// How many locks are read at once.
const AT_ONCE: usize = 64;

/// Reads a lock from its directory, after a `sync`, because the server of this client may lag. A leader
/// that was replaced answers `sync` and reads alone for up to `syncLimit` ticks, so the result may still be
/// old.
async fn view_now(
    session: &ZkSession,
    directory: &Directory,
) -> Result<Option<LockView>, ZkFailure> {
    // Both are sent here, in this order.
    let synced = session.client.sync(directory.path());
    let view = LockView::read(&session.client, directory, Depth::Line);
    let (synced, view) = join!(synced, view);
    synced?;
    view
}

/// A held lock, as its directory shows it.
#[derive(Debug)]
struct LockView {
    holders: Vec<ContenderNode>,
    /// `None` if they were not read.
    waiters: Option<Vec<ContenderNode>>,
}

/// Whose nodes are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Depth {
    Holders,
    /// Those of all waiters as well.
    Line,
}

/// A contender and its node.
#[derive(Debug)]
struct ContenderNode {
    contender: ZkContender,
    data: Vec<u8>,
    stat: Stat,
    /// Whether nothing has changed in the directory since it came.
    is_latest: bool,
}

impl LockView {
    /// Reads a directory; `None` if the lock is free.
    async fn read(
        connection: &Connection,
        directory: &Directory,
        depth: Depth,
    ) -> Result<Option<Self>, ZkFailure> {
        let (names, stat) = match connection.get_children(directory.path()).await {
            Ok(listed) => listed,
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut line = contenders_in_order(names.iter().map(String::as_str));
        let created = created(&line, connection, directory).await?;
        order_by_creation(&mut line, &created);
        let mut nodes = HashMap::new();
        // If a node is gone by then, others may have acquired the lock, or a downgrade has given it another
        // name.
        let holding = loop {
            let holding = queue_holders(&line);
            let read = match depth {
                Depth::Holders => holding,
                Depth::Line => line.len(),
            };
            let unread = line[..read].iter().map(|own| own.name.clone());
            let unread: Vec<_> = unread.filter(|name| !nodes.contains_key(name)).collect();
            if unread.is_empty() {
                break holding;
            }
            let paths = unread.iter().map(|name| directory.child(name));
            let found = paths.map(|path| async move { node(connection, &path).await });
            let found = join_all(found).await;
            for (name, found) in unread.into_iter().zip(found) {
                match found? {
                    Some(node) => drop(nodes.insert(name, node)),
                    None => {
                        let rename = |own: ZkContender| match own.name == name {
                            true => own.downgraded(),
                            false => Some(own),
                        };
                        line = line.into_iter().filter_map(rename).collect();
                    }
                }
            }
        };
        let mut entries = |line: Vec<ZkContender>| -> Vec<_> {
            let entry = |contender: ZkContender| {
                let (data, node) = nodes.remove(&contender.name)?;
                let is_latest = node.czxid == stat.pzxid;
                Some(ContenderNode {
                    contender,
                    data,
                    stat: node,
                    is_latest,
                })
            };
            line.into_iter().filter_map(entry).collect()
        };
        let waiting = line.split_off(holding);
        let holders = entries(line);
        let waiters = (depth == Depth::Line).then(|| entries(waiting));
        Ok((!holders.is_empty()).then_some(Self { holders, waiters }))
    }

    fn info(&self, key: LockKey) -> LockInfo {
        let mode = self.holders.first().map(|entry| entry.contender.mode);
        let holders = self.holders.iter().map(ContenderNode::holder).collect();
        let info = LockInfo::new(key, mode.unwrap_or_default(), holders);
        match &self.waiters {
            Some(waiters) => info.with_waiters(waiters.iter().map(ContenderNode::label).collect()),
            None => info,
        }
    }

    /// The same, with each holder by its last write. A hand-over with a write looks like a new holder;
    /// other hand-overs are not seen.
    fn watched(&self, key: LockKey) -> (LockInfo, BTreeSet<(String, i64)>) {
        let holders = self.holders.iter();
        let holders = holders.map(|entry| (entry.contender.name.clone(), entry.stat.mzxid));
        (self.info(key), holders.collect())
    }
}

/// Data and stat of a node; no data if this client may not read it, `None` if the node is gone.
async fn node(connection: &Connection, path: &str) -> Result<Option<(Vec<u8>, Stat)>, ZkFailure> {
    match connection.get_data(path).await {
        Ok(node) => Ok(Some(node)),
        Err(ClientError::NoNode) => Ok(None),
        Err(ClientError::NoAuth) => {
            let stat = connection.check_stat(path).await?;
            Ok(stat.map(|stat| (Vec::new(), stat)))
        }
        Err(error) => Err(error.into()),
    }
}

impl ContenderNode {
    fn holder(&self) -> HolderInfo {
        let mut holder = HolderInfo::new(self.label());
        (holder.token, holder.since) = self.token_and_since();
        holder
    }

    /// The token and the time of the grant, if the ensemble has them: it does not record the listing that
    /// showed a former waiter first.
    fn token_and_since(&self) -> (Option<FencingToken>, Option<SystemTime>) {
        let Stat {
            czxid,
            mzxid,
            ctime,
            mtime,
            ..
        } = self.stat;
        if let Some(noted) = noted_token(&self.data) {
            (Some(noted), None)
        } else if mzxid > czxid {
            (token(mzxid), at(mtime))
        } else if self.is_latest {
            (token(czxid), at(ctime))
        } else {
            (None, None)
        }
    }

    fn label(&self) -> Label {
        let text = String::from_utf8_lossy(&self.data);
        if text.contains('=') {
            return Label::decode(&text);
        }
        // Kazoo writes a text of the user's, Curator an address or nothing.
        Label::of_note(text)
    }
}

fn at(millis: i64) -> Option<SystemTime> {
    let millis = u64::try_from(millis).ok()?;
    Some(UNIX_EPOCH + Duration::from_millis(millis))
}
