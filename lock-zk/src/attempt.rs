//! One acquisition, from its first request to its grant.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::join;
use lock_core::engine::{Moment, before};
use lock_core::{AcquireRequest, Error, ErrorKind, FencingToken, Grant, Mode, Result};
use tokio::time::Instant;
use zookeeper_client::{CreateMode, Error as ClientError, OneshotWatcher};

use crate::acl::acls;
use crate::budget::Budget;
use crate::config::Compat;
use crate::error::Failure;
use crate::lease::ZooKeeperLease;
use crate::lock::Client;
use crate::names::Contender;
use crate::node::{Known, Node};
use crate::root::make_root;
use crate::standing::{Blocker, Standing, by_creation, in_line, is_out_of_numbers, standing};

/// How an attempt ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// The session or the node has ended: there is nothing left of this attempt, and the next one goes
    /// to the end of the line.
    Gone,
    /// The lock is held, or not to be had in this way; the node is still there.
    Refused(Error),
}

pub(crate) struct Attempt<'a> {
    pub(crate) client: &'a Client,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) budget: Budget,
    pub(crate) lease: &'a ZooKeeperLease,
    was_held: AtomicBool,
}

/// Why an attempt does not go on.
enum Halt {
    Failed(Failure),
    /// The session or the node is gone.
    Gone,
    /// No answer in time.
    Late,
}

/// The directory as it was seen.
struct Seen {
    names: Vec<String>,
    /// The last change of its children.
    pzxid: i64,
    /// When the request for it left.
    sent: Moment,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        client: &'a Client,
        request: &'a AcquireRequest,
        budget: Budget,
        lease: &'a ZooKeeperLease,
    ) -> Self {
        Self {
            client,
            request,
            budget,
            lease,
            was_held: AtomicBool::new(false),
        }
    }

    /// Goes into line and waits until nobody is before it who excludes it.
    pub(crate) async fn run(&self) -> Result<Outcome> {
        match self.stand_in_line().await {
            Ok(outcome) => Ok(outcome),
            Err(Halt::Gone) => Ok(Outcome::Gone),
            Err(Halt::Failed(failure)) => Err(failure.into()),
            Err(Halt::Late) => Err(self.gives_up()),
        }
    }

    async fn stand_in_line(&self) -> Result<Outcome, Halt> {
        let (node, mut seen) = self.enter().await?;
        let mut is_repeated = false;
        loop {
            let blocker = match self.standing(&seen, &node).await? {
                Standing::Gone => return Err(Halt::Gone),
                // What was asked before an outage and answered after it proves nothing for long.
                Standing::Holds if !is_repeated && !self.lease.session.is_recent(seen.sent) => {
                    is_repeated = true;
                    seen = self.list().await?;
                    continue;
                }
                Standing::Holds => {
                    self.lease.is_first(seen.sent);
                    let token = self.token(&seen, &node).await?;
                    return Ok(Outcome::Granted(Grant::new(seen.sent, Some(token))));
                }
                Standing::OtherLimit(limit) => return Ok(Outcome::Refused(other_limit(limit))),
                Standing::Behind(blocker) => blocker,
            };
            self.was_held.store(true, Ordering::Relaxed);
            if !self.budget.waits() || self.budget.is_over() {
                return Ok(Outcome::Refused(self.budget.contended()));
            }
            self.request.note_held();
            seen = match self.wait(&blocker, &node).await? {
                Some(seen) => seen,
                None => self.list().await?,
            };
        }
    }

    /// Creates the node and lists the directory, in one round trip: the list is that after the creation.
    async fn enter(&self) -> Result<(Node, Seen), Halt> {
        let until = self.budget.step();
        let (client, lease) = (&self.lease.session.client, self.lease);
        let options = CreateMode::EphemeralSequential.with_acls(acls(self.client.access()));
        let stem = lease.directory.child(&lease.stem);
        loop {
            lease.node.set(Known::Perhaps);
            let sent = self.client.engine.now();
            // Both are sent here, in this order.
            let created = client.create(&stem, &lease.data, &options);
            let listed = client.get_children(lease.directory.path());
            let (created, listed) = self.until(until, async { join!(created, listed) }).await?;
            let node = match created.map_err(Failure::from) {
                Ok((stat, number)) => {
                    if !lease.session.owns(&stat) {
                        lease.session.end();
                        return Err(Halt::Gone);
                    }
                    let contender = Contender::parse(&format!("{}{number}", lease.stem));
                    let contender = contender.ok_or_else(|| not_understood(&number))?;
                    let czxid = stat.czxid;
                    let node = Node { contender, czxid };
                    lease.node.set(Known::At(node.clone()));
                    node
                }
                Err(failure) if is(&failure, &ClientError::NoNode) => {
                    self.make_directory(until).await?;
                    continue;
                }
                Err(failure) => {
                    self.pause_if_ambiguous(failure).await?;
                    match self.find(until).await? {
                        Some(node) => node,
                        None => continue,
                    }
                }
            };
            let seen = match listed {
                Ok((names, directory)) => Seen {
                    names,
                    pzxid: directory.pzxid,
                    sent,
                },
                Err(_) => self.list().await?,
            };
            // What was found after a lost reply may be newer than the list.
            if seen.names.contains(&node.contender.name) {
                return Ok((node, seen));
            }
            return Ok((node, self.list().await?));
        }
    }

    /// Looks for the node after a reply was lost.
    async fn find(&self, until: Instant) -> Result<Option<Node>, Halt> {
        loop {
            match self.until(until, self.lease.find()).await? {
                Ok(found) => return Ok(found),
                Err(failure) => self.pause_if_ambiguous(failure).await?,
            }
        }
    }

    /// Creates the directory, which ZooKeeper removes when nobody has used it for a while; unless it is
    /// for kazoo as well, which makes sure of it once and fails if it is gone later.
    async fn make_directory(&self, until: Instant) -> Result<(), Halt> {
        let client = &self.lease.session.client;
        let path = self.lease.directory.path();
        let mut mode = match self.client.sessions.config.compat {
            Compat::Kazoo => CreateMode::Persistent,
            _ => CreateMode::Container,
        };
        loop {
            let options = mode.with_acls(acls(self.client.access()));
            let made = self
                .until(until, client.create(path, &[], &options))
                .await?;
            match made {
                Ok(_) | Err(ClientError::NodeExists) => return Ok(()),
                // Servers before 3.5.3.
                Err(ClientError::Unimplemented) if mode == CreateMode::Container => {
                    mode = CreateMode::Persistent;
                }
                Err(ClientError::NoNode) => {
                    let root = make_root(client, &self.client.sessions.config);
                    if let Err(failure) = self.until(until, root).await? {
                        self.pause_if_ambiguous(failure).await?;
                    }
                }
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    async fn list(&self) -> Result<Seen, Halt> {
        let until = self.budget.step();
        loop {
            let sent = self.client.engine.now();
            let path = self.lease.directory.path();
            let listed = self.lease.session.client.get_children(path);
            match self.until(until, listed).await? {
                Ok((names, directory)) => {
                    return Ok(Seen {
                        names,
                        pzxid: directory.pzxid,
                        sent,
                    });
                }
                // Somebody has deleted the directory with all that was in it.
                Err(ClientError::NoNode) => return Err(Halt::Gone),
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    async fn standing(&self, seen: &Seen, node: &Node) -> Result<Standing, Halt> {
        let own = &node.contender.name;
        let mut line = in_line(seen.names.iter().map(String::as_str), Some(own));
        if is_out_of_numbers(&line) {
            self.order_by_creation(&mut line).await?;
        }
        Ok(standing(&line, own))
    }

    /// Asks when the contenders were created, since their numbers do not tell.
    async fn order_by_creation(&self, line: &mut Vec<Contender>) -> Result<(), Halt> {
        let until = self.budget.step();
        let (client, directory) = (&self.lease.session.client, &self.lease.directory);
        loop {
            let stats = line.iter().map(|contender| {
                let path = directory.child(&contender.name);
                async move { client.check_stat(&path).await }
            });
            let stats = self.until(until, join_all(stats)).await?;
            let stats: Result<Vec<_>, _> = stats.into_iter().collect();
            match stats {
                Ok(stats) => {
                    let named = line.iter().map(|contender| contender.name.clone());
                    let created = named.zip(stats);
                    let created = created.filter_map(|(name, stat)| Some((name, stat?.czxid)));
                    by_creation(line, &created.collect());
                    return Ok(());
                }
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    /// Waits until it is worth to look again; what is seen by then, if a look was part of it.
    async fn wait(&self, blocker: &Blocker, node: &Node) -> Result<Option<Seen>, Halt> {
        let until = self.budget.step();
        let (client, directory) = (&self.lease.session.client, &self.lease.directory);
        let watching = async {
            let watched = match blocker {
                // A watch on children, which a contender cannot have, tells the end and no writes.
                Blocker::End(name) => {
                    let path = directory.child(name);
                    let watched = client.get_and_watch_children(&path).await;
                    watched.map(|(_, _, watcher)| watcher)
                }
                Blocker::EndOrPermit(name) => {
                    let path = directory.child(name);
                    let watched = client.get_and_watch_data(&path).await;
                    watched.map(|(_, _, watcher)| watcher)
                }
                Blocker::Directory => return self.watch_directory().await,
            };
            match watched {
                // Whoever may not read a node is not told of its end by any watch on it.
                Err(ClientError::NoAuth) => self.watch_directory().await,
                watched => Ok((None, watched?)),
            }
        };
        let watching = self.until(until, watching).await?;
        let (seen, watcher) = match watching {
            Ok(watching) => watching,
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => {
                self.pause_if_ambiguous(error.into()).await?;
                return Ok(None);
            }
        };
        if let Some(seen) = seen
            && self.standing(&seen, node).await? != Standing::Behind(blocker.clone())
        {
            return Ok(Some(seen));
        }
        self.changed(watcher).await?;
        Ok(None)
    }

    async fn watch_directory(&self) -> Result<(Option<Seen>, OneshotWatcher), ClientError> {
        let sent = self.client.engine.now();
        let path = self.lease.directory.path();
        let watched = self.lease.session.client.get_and_watch_children(path);
        let (names, directory, watcher) = watched.await?;
        let pzxid = directory.pzxid;
        let seen = Seen { names, pzxid, sent };
        Ok((Some(seen), watcher))
    }

    /// Waits for what is watched, for as long as there is time and the session lasts.
    async fn changed(&self, watcher: OneshotWatcher) -> Result<(), Halt> {
        let changed = async {
            tokio::select! {
                _ = watcher.changed() => Ok(()),
                () = self.lease.session.ended() => Err(Halt::Gone),
            }
        };
        match self.budget.deadline() {
            None => changed.await,
            Some(deadline) => before(deadline, changed).await.unwrap_or(Err(Halt::Late)),
        }
    }

    /// The token of a holder: the last change of the directory that shows that it is the first.
    ///
    /// That is later than the end of every holder before it, and so than all tokens that were handed
    /// over. Several may hold shared locks and permits at a time: unless the last
    /// change was the own one, a write of its own gives them one that nobody else has. Those who wait
    /// for a permit learn by the write that one is granted.
    async fn token(&self, seen: &Seen, node: &Node) -> Result<FencingToken, Halt> {
        if self.request.mode() == Mode::Exclusive || seen.pzxid == node.czxid {
            return self.lease.drawn(seen.pzxid).map_err(Halt::Failed);
        }
        let until = self.budget.step();
        let path = self.lease.path(node);
        loop {
            let client = &self.lease.session.client;
            let written = client.set_data(&path, &self.lease.data, None);
            match self.until(until, written).await? {
                Ok(stat) => return self.lease.drawn(stat.mzxid).map_err(Halt::Failed),
                Err(ClientError::NoNode) => return Err(Halt::Gone),
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    /// Bounds one step.
    async fn until<T>(&self, until: Instant, work: impl Future<Output = T>) -> Result<T, Halt> {
        before(until, work).await.ok_or(Halt::Late)
    }

    /// Lets the client connect again before the next request; gives back what no repetition changes.
    async fn pause_if_ambiguous(&self, failure: Failure) -> Result<(), Halt> {
        if failure.is_over() {
            return Err(Halt::Gone);
        }
        if !failure.is_ambiguous() {
            return Err(Halt::Failed(failure));
        }
        tokio::time::sleep(self.client.engine.jitter(PAUSE / 2, PAUSE)).await;
        Ok(())
    }

    /// The error of a caller whose time is over.
    fn gives_up(&self) -> Error {
        if self.was_held.load(Ordering::Relaxed) && self.budget.is_over() {
            return self.budget.contended();
        }
        let message = "ZooKeeper did not answer in time: too few of its servers are up, or none is \
                       within reach";
        Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
    }
}

fn is(failure: &Failure, error: &ClientError) -> bool {
    failure.client() == Some(error)
}

fn not_understood(number: &impl std::fmt::Display) -> Halt {
    Halt::Failed(Failure::protocol(&format!(
        "a node with the number {number}"
    )))
}

fn other_limit(limit: u32) -> Error {
    let message = format!("permits of this key are taken with the limit {limit}");
    Error::new(ErrorKind::InvalidRequest, message)
}

/// Between a broken connection and the next request.
const PAUSE: Duration = Duration::from_millis(20);
