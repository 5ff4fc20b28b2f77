//! One acquisition, from its first request to its grant.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::join;
use polylock_core::engine::{Blocker, Moment, QueuePosition, TimeBudget, before, queue_position};
use polylock_core::{AcquireRequest, FencingToken, Grant, Mode};
use tokio::time::{Instant, sleep};
use zookeeper_client::{CreateMode, Error as ClientError, OneshotWatcher, SessionState, Stat};

use crate::error::{RETRY_BACKOFF, ZkFailure};
use crate::lease::{FoundNode, KnownNode, ZkNode, ZooKeeperLease};
use crate::lock::ZkClient;
use crate::recipe::names::ZkContender;
use crate::recipe::sequence::{contenders_in_order, created, order_by_creation};
use crate::session::connect::make_directory;

pub(crate) struct ZkAttempt<'a> {
    pub(crate) client: &'a ZkClient,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) budget: &'a TimeBudget,
    pub(crate) lease: &'a ZooKeeperLease,
    /// Whether it has waited for another contender.
    pub(crate) has_waited: AtomicBool,
}

/// Why an attempt is not granted the lock.
pub(crate) enum ZkAttemptError {
    Failed(ZkFailure),
    /// The session or the node has ended, and with it this attempt. The next attempt joins the end of the
    /// queue.
    Gone,
    /// No answer in time.
    Late,
    /// The lock is held; the node still exists.
    Refused,
}

/// The children of the directory of the key.
struct ChildList {
    names: Vec<String>,
    /// The last change of its children.
    pzxid: i64,
    /// When the request for it was sent.
    sent: Moment,
}

impl ChildList {
    fn new(names: Vec<String>, directory: &Stat, sent: Moment) -> Self {
        let pzxid = directory.pzxid;
        Self { names, pzxid, sent }
    }
}

/// A watch on a node, and the evidence that it was set in time.
struct Watching {
    watcher: OneshotWatcher,
    /// The directory, where it was listed since.
    listing: Option<ChildList>,
    /// The awaited change may have happened before.
    is_late: bool,
}

/// The poll interval of a waiter without a watch.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl ZkAttempt<'_> {
    /// Queues and waits until no predecessor excludes it.
    pub(crate) async fn run(&self) -> Result<Grant, ZkAttemptError> {
        let mut entered = self.client.engine.now();
        let (node, mut listing) = self.enter().await?;
        loop {
            let blocker = match self.queue_position(&mut listing, &node).await? {
                QueuePosition::Gone => return Err(ZkAttemptError::Gone),
                QueuePosition::Holds => {
                    self.budget.mark_free();
                    if self.lease.session.broke_since(entered) {
                        entered = self.client.engine.now();
                        self.look_at_own(&node).await?;
                        listing = self.list().await?;
                        continue;
                    }
                    if self.lease.session.is_unproven() {
                        self.prove().await?;
                    }
                    let token = self.token(&listing, &node).await?;
                    if self.lease.session.proves(listing.sent) {
                        self.lease.is_first(listing.sent);
                        return Ok(Grant::new(listing.sent, Some(token)));
                    }
                    listing = self.list_again().await?;
                    continue;
                }
                QueuePosition::Behind(blocker) => blocker,
            };
            self.budget.mark_held();
            if !self.budget.waits() {
                return Err(ZkAttemptError::Refused);
            }
            self.request.mark_contended();
            self.has_waited.store(true, Ordering::Relaxed);
            listing = match self.wait(&blocker, &node).await? {
                Some(listing) => listing,
                None => self.list().await?,
            };
        }
    }

    /// Creates the node, then lists the directory, in one round trip.
    async fn enter(&self) -> Result<(ZkNode, ChildList), ZkAttemptError> {
        let until = self.budget.step();
        let (client, lease) = (&self.lease.session.client, self.lease);
        let options = CreateMode::EphemeralSequential.with_acls(lease.config.acls());
        let stem = lease.directory.child(&lease.stem);
        self.mark_sent(false);
        loop {
            let sent = self.client.engine.now();
            // Both are sent here, in this order.
            let created = client.create(&stem, &lease.data, &options);
            let listed = client.get_children(lease.directory.path());
            let (created, listed) = self.until(until, async { join!(created, listed) }).await?;
            let node = match created {
                Ok((stat, number)) => {
                    let contender = ZkContender::parse(&format!("{}{number}", lease.stem));
                    let contender = contender.ok_or_else(|| {
                        let message = format!("a node with the number {number}");
                        ZkAttemptError::Failed(ZkFailure::Malformed(message))
                    })?;
                    let czxid = stat.czxid;
                    let node = ZkNode { contender, czxid };
                    lease.set_node(KnownNode::At(node.clone()));
                    if !lease.session.owns(&stat) {
                        // The node is in a session that this client does not know of.
                        lease.session.end();
                        return Err(ZkAttemptError::Gone);
                    }
                    lease.session.committed(sent);
                    node
                }
                Err(ClientError::NoNode) => {
                    self.make_directory(until).await?;
                    continue;
                }
                Err(error) => {
                    self.pause_if_ambiguous(error.into()).await?;
                    match self.retried(until, || lease.find()).await? {
                        FoundNode::At(node) => node,
                        FoundNode::Missing { .. } => continue,
                    }
                }
            };
            return match listed {
                // What was found after a lost reply may be newer than the list.
                Ok((names, directory)) if names.contains(&node.contender.name) => {
                    Ok((node, ChildList::new(names, &directory, sent)))
                }
                _ => Ok((node, self.list().await?)),
            };
        }
    }

    /// From here on the node may exist. A release that does not find it deletes a directory that may be new.
    fn mark_sent(&self, is_directory_new: bool) {
        self.lease.set_node(KnownNode::Unknown { is_directory_new });
    }

    /// Creates the directory, unless another contender has.
    async fn make_directory(&self, until: Instant) -> Result<(), ZkAttemptError> {
        let (client, config) = (&self.lease.session.client, &self.client.sessions.config);
        let path = self.lease.directory.path();
        self.mark_sent(true);
        let mut is_sent = false;
        loop {
            match self
                .until(until, make_directory(client, path, config))
                .await?
            {
                Ok(is_new) => {
                    // An earlier request without a reply may have created it.
                    self.mark_sent(is_new || is_sent);
                    return Ok(());
                }
                Err(failure) => self.pause_if_ambiguous(failure).await?,
            }
            is_sent = true;
        }
    }

    async fn list(&self) -> Result<ChildList, ZkAttemptError> {
        let path = self.lease.directory.path();
        let list = || async {
            let sent = self.client.engine.now();
            // Without a directory, all its contents were deleted.
            let (names, directory) = self.lease.session.client.get_children(path).await?;
            Ok(ChildList::new(names, &directory, sent))
        };
        self.retried(self.budget.step(), list).await
    }

    /// Lists again before the first contender is granted the lock, which needs a recent answer and evidence
    /// that the session lasts. Heartbeats provide that soon after an outage.
    async fn list_again(&self) -> Result<ChildList, ZkAttemptError> {
        if self.lease.session.is_over() {
            return Err(ZkAttemptError::Gone);
        }
        if self.budget.is_spent() {
            return Err(ZkAttemptError::Late);
        }
        sleep(RETRY_BACKOFF).await;
        self.list().await
    }

    /// Checks, after a break, that the session of the connection owns the node. The client may have got
    /// another session silently, while the node of the old one still exists.
    async fn look_at_own(&self, node: &ZkNode) -> Result<(), ZkAttemptError> {
        let path = &self.lease.path(node);
        let owns = || async {
            let owned = self.lease.session.client.list_ephemerals(path).await?;
            Ok(owned.contains(path))
        };
        match self.retried(self.budget.step(), owns).await? {
            true => Ok(()),
            false => Err(ZkAttemptError::Gone),
        }
    }

    /// The position of the node in the listing, or in a later one if that one is inconclusive.
    async fn queue_position(
        &self,
        listing: &mut ChildList,
        node: &ZkNode,
    ) -> Result<QueuePosition, ZkAttemptError> {
        let own = &node.contender.name;
        loop {
            let names = listing.names.iter().map(String::as_str);
            let mut line = contenders_in_order(names);
            let contenders = line.len();
            if line.iter().any(|own| own.sequence.is_used_up()) {
                let created = || async {
                    let session = &self.lease.session;
                    Ok(created(&line, &session.client, &self.lease.directory).await?)
                };
                let created = self.retried(self.budget.step(), created).await?;
                order_by_creation(&mut line, &created);
            }
            let queue_position = queue_position(&line, own);
            if queue_position == QueuePosition::Holds && line.len() < contenders {
                // A contender has left since. The last change in the listing is older than the evidence
                // that this contender is the first, and would give another holder's token.
                *listing = self.list().await?;
                continue;
            }
            return Ok(queue_position);
        }
    }

    /// Commits a write before the lock is granted after a long wait: the session may have been
    /// served by a leader that was replaced.
    async fn prove(&self) -> Result<(), ZkAttemptError> {
        let prove = || async { Ok(self.lease.session.prove().await?) };
        self.retried(self.budget.step(), prove).await
    }

    /// The token of a holder: the last change of the directory that shows that it is the first.
    ///
    /// That is later than the end of every earlier holder, and so than all tokens that were handed over.
    /// Shared locks and permits have several holders: unless the last change was its own, a holder gets a
    /// unique token by a write. Permit waiters learn from the write that a permit was granted.
    async fn token(
        &self,
        listing: &ChildList,
        node: &ZkNode,
    ) -> Result<FencingToken, ZkAttemptError> {
        let is_alone = self.request.mode() == Mode::Exclusive || listing.pzxid == node.czxid;
        let zxid = if is_alone {
            listing.pzxid
        } else {
            let (client, path) = (&self.lease.session.client, &self.lease.path(node));
            let write = || async { Ok(client.set_data(path, &self.lease.data, None).await?) };
            self.retried(self.budget.step(), write).await?.mzxid
        };
        self.lease.drawn(zxid).map_err(ZkAttemptError::Failed)
    }

    /// Waits until a new listing is worthwhile. Returns the listing, if the wait included one.
    async fn wait(
        &self,
        blocker: &Blocker,
        node: &ZkNode,
    ) -> Result<Option<ChildList>, ZkAttemptError> {
        let directory = &self.lease.directory;
        let path = match blocker {
            Blocker::End(name) | Blocker::EndOrPermit(name) => directory.child(name),
            Blocker::Directory => directory.path().to_owned(),
        };
        let Some(_room) = self.lease.session.watch_budget.for_waiter(&path) else {
            let pause = self.client.engine.jitter(POLL_INTERVAL / 2, POLL_INTERVAL);
            self.changed_or_reconnected(sleep(pause)).await?;
            return Ok(None);
        };
        let until = self.budget.step();
        let watching = match self.until(until, self.watch(blocker, &path)).await? {
            Ok(watching) => watching,
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => {
                self.pause_if_ambiguous(error.into()).await?;
                return Ok(None);
            }
        };
        let mut listing = match watching.listing {
            None if watching.is_late => Some(self.list().await?),
            listing => listing,
        };
        let mut change = pin!(watching.watcher.changed());
        loop {
            if let Some(mut listing) = listing {
                let queue_position = self.queue_position(&mut listing, node).await?;
                if queue_position != QueuePosition::Behind(blocker.clone()) {
                    return Ok(Some(listing));
                }
            }
            // The blocker was there, also if the reply took long enough to count as silence.
            self.budget.mark_held();
            self.request.mark_contended();
            let changed = self.changed_or_reconnected(change.as_mut()).await?;
            if changed.is_some() {
                return Ok(None);
            }
            // The watch has outlasted the outage.
            listing = Some(self.list().await?);
        }
    }

    async fn watch(&self, blocker: &Blocker, path: &str) -> Result<Watching, ClientError> {
        let client = &self.lease.session.client;
        let watched = match blocker {
            // A contender's node has no children, so a watch on them fires when the node is deleted, and
            // not on writes.
            Blocker::End(_) => {
                let watched = client.get_and_watch_children(path).await;
                watched.map(|(_, _, watcher)| (watcher, false))
            }
            Blocker::EndOrPermit(_) => {
                let watched = client.get_and_watch_data(path).await;
                // It has its permit already, and writes no more; unless another client has written.
                watched.map(|(_, stat, watcher)| (watcher, stat.mzxid > stat.czxid))
            }
            Blocker::Directory => return self.watch_directory().await,
        };
        match watched {
            // Without the right to read a node, no watch on it fires at its end.
            Err(ClientError::NoAuth) => self.watch_directory().await,
            watched => watched.map(|(watcher, is_late)| Watching {
                watcher,
                listing: None,
                is_late,
            }),
        }
    }

    async fn watch_directory(&self) -> Result<Watching, ClientError> {
        let sent = self.client.engine.now();
        let path = self.lease.directory.path();
        let watched = self.lease.session.client.get_and_watch_children(path);
        let (names, directory, watcher) = watched.await?;
        Ok(Watching {
            watcher,
            listing: Some(ChildList::new(names, &directory, sent)),
            is_late: false,
        })
    }

    /// Waits for a change; `None` if the connection has broken meanwhile and there is another one. A watch
    /// does not fire in an outage, and the session ends long after the last reply.
    async fn changed_or_reconnected<T>(
        &self,
        change: impl Future<Output = T>,
    ) -> Result<Option<T>, ZkAttemptError> {
        let outage = async {
            self.lease.session.reached(SessionState::Disconnected).await;
            self.mark_unresponsive();
            self.lease
                .session
                .reached(SessionState::SyncConnected)
                .await;
        };
        let changed = async {
            tokio::select! {
                biased;
                change = change => Some(change),
                () = outage => None,
            }
        };
        self.changed(changed).await
    }

    /// The servers no longer answer, so that the lock may be free by now. The next listing shows whether it
    /// is.
    pub(crate) fn mark_unresponsive(&self) {
        self.budget.mark_free();
        self.request.mark_unresponsive();
    }

    /// Waits for a change, for as long as there is time and the session lasts.
    async fn changed<T>(&self, change: impl Future<Output = T>) -> Result<T, ZkAttemptError> {
        let changed = async {
            tokio::select! {
                biased;
                change = change => Ok(change),
                () = self.lease.session.ended() => Err(ZkAttemptError::Gone),
            }
        };
        match self.budget.deadline() {
            None => changed.await,
            Some(deadline) => before(deadline, changed)
                .await
                .unwrap_or(Err(ZkAttemptError::Late)),
        }
    }

    /// Retries a request until it has a definite answer.
    async fn retried<T, F>(
        &self,
        until: Instant,
        request: impl Fn() -> F,
    ) -> Result<T, ZkAttemptError>
    where
        F: Future<Output = Result<T, ZkFailure>>,
    {
        loop {
            match self.until(until, request()).await? {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.is_no_node() => {
                    return Err(ZkAttemptError::Gone);
                }
                Err(failure) => {
                    let is_unclear = failure.is_unclear_reply();
                    self.pause_if_ambiguous(failure).await?;
                    if is_unclear && Instant::now() >= until {
                        return Err(ZkAttemptError::Late);
                    }
                }
            }
        }
    }

    /// Bounds one step. A waiter without a reply keeps its place for as long as its session lasts; if its
    /// wait ends meanwhile, the error is `Unavailable`.
    async fn until<T>(
        &self,
        until: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, ZkAttemptError> {
        let mut work = pin!(work);
        if let Some(done) = before(until, work.as_mut()).await {
            return Ok(done);
        }
        if !(self.has_waited.load(Ordering::Relaxed) && self.budget.waits()) {
            return Err(ZkAttemptError::Late);
        }
        self.mark_unresponsive();
        self.changed(work).await
    }

    /// Lets the client reconnect before the next request; returns errors that a retry cannot fix.
    async fn pause_if_ambiguous(&self, failure: ZkFailure) -> Result<(), ZkAttemptError> {
        if failure.is_over() {
            // It may not be reported yet, and the next attempt needs the next session.
            self.lease.session.end();
            return Err(ZkAttemptError::Gone);
        }
        if !failure.is_ambiguous() {
            return Err(ZkAttemptError::Failed(failure));
        }
        self.mark_unresponsive();
        sleep(self.client.engine.jitter(RETRY_BACKOFF / 2, RETRY_BACKOFF)).await;
        Ok(())
    }
}
