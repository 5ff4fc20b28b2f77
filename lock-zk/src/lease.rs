use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::join;
use polylock_core::engine::{LeaseId, Moment, TokenBlock};
use polylock_core::{
    AcquireRequest, Error, ErrorKind, FencingToken, Lease, LeaseControl, Liveness, LostReason,
    Mode, Released, Result,
};
use tokio::time::sleep;
use zookeeper_client::{Error as ClientError, Stat};

use crate::config::{Compat, ZooKeeperConfig};
use crate::error::{RETRY_BACKOFF, ZkFailure};
use crate::recipe::directory::Directory;
use crate::recipe::names::{ZkContender, stem};
use crate::recipe::tokens;
use crate::session::ZkSession;

/// One contender: an ephemeral node in the directory of its key.
pub(crate) struct ZooKeeperLease {
    pub(crate) session: Arc<ZkSession>,
    pub(crate) directory: Directory,
    pub(crate) id: LeaseId,
    /// The prefix of the node's name.
    pub(crate) stem: String,
    /// The data of the node: the label of the contender.
    pub(crate) data: Vec<u8>,
    node: Mutex<KnownNode>,
    /// Locked by a downgrade, and after it by the search for the node whose name it has left unknown.
    search: Arc<tokio::sync::Mutex<()>>,
    pub(crate) config: Arc<ZooKeeperConfig>,
    pub(crate) tokens: TokenBlock,
    /// When the request was sent that showed the node first, in nanoseconds.
    seen: AtomicU64,
    /// A release has sent a request to delete the node, which had no reply, and has not reported yet that its
    /// outcome is unknown.
    is_deleted_perhaps: AtomicBool,
    /// A background task has sent a request to delete the node.
    pub(crate) is_deleted_in_background: Arc<AtomicBool>,
}

impl ZooKeeperLease {
    pub(crate) fn new(
        session: Arc<ZkSession>,
        config: &Arc<ZooKeeperConfig>,
        request: &AcquireRequest,
        id: LeaseId,
    ) -> Self {
        Self {
            session,
            directory: Directory::of(request.key()),
            id,
            stem: stem(config.compat, request.mode(), id),
            data: request.label().encode().into_bytes(),
            node: Mutex::new(KnownNode::Never),
            search: Arc::default(),
            config: Arc::clone(config),
            tokens: TokenBlock::default(),
            seen: AtomicU64::new(0),
            is_deleted_perhaps: AtomicBool::new(false),
            is_deleted_in_background: Arc::default(),
        }
    }

    /// Looks for the node, as the ensemble has it now; notes what is found.
    pub(crate) async fn find(&self) -> Result<FoundNode, ZkFailure> {
        let found = find(&self.session, &self.directory, &self.stems()).await?;
        if let FoundNode::At(node) = &found {
            self.set_node(KnownNode::At(node.clone()));
        }
        Ok(found)
    }

    /// What the name of the node may begin with: a downgrade gives it another one.
    pub(crate) fn stems(&self) -> [String; 2] {
        let shared = stem(self.config.compat, Mode::Shared, self.id);
        [self.stem.clone(), shared]
    }

    /// The token of a holder, proved by this transaction.
    pub(crate) fn drawn(&self, zxid: i64) -> Result<FencingToken, ZkFailure> {
        let token = tokens::begin(&self.tokens, zxid);
        token.ok_or_else(|| ZkFailure::Malformed(format!("transaction {zxid:#x} makes no token")))
    }

    /// A request that left at `sent` shows that the lock is held.
    pub(crate) fn is_first(&self, sent: Moment) {
        self.seen.store(sent.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn path(&self, node: &ZkNode) -> String {
        self.directory.child(&node.contender.name)
    }

    pub(crate) fn set_node(&self, known: KnownNode) {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    fn known_node(&self) -> KnownNode {
        let known = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// The node, if it was ever seen.
    fn node(&self) -> Option<ZkNode> {
        match self.known_node() {
            KnownNode::At(node) => Some(node),
            KnownNode::Gone | KnownNode::Never | KnownNode::Unknown { .. } => None,
        }
    }

    /// The outcome of a release that finds no node. After a deletion without a reply, it is unknown whether
    /// that deletion or something else ended the node.
    fn found_gone(&self) -> Result<Released, ZkFailure> {
        if self.is_deleted_perhaps.load(Ordering::Relaxed) {
            return Err(self.unconfirmed());
        }
        Ok(
            match self.is_deleted_in_background.load(Ordering::Relaxed) {
                true => Released::Clean,
                false => Released::AlreadyLost,
            },
        )
    }

    /// The outcome of a release that finds the session over, and the node with it.
    fn found_over(&self) -> Result<Released, ZkFailure> {
        let is_sent = self.is_deleted_perhaps.load(Ordering::Relaxed)
            || self.is_deleted_in_background.load(Ordering::Relaxed);
        match is_sent {
            true => Err(self.unconfirmed()),
            false => Ok(Released::AlreadyLost),
        }
    }

    fn unconfirmed(&self) -> ZkFailure {
        self.set_node(KnownNode::Gone);
        ZkFailure::Unconfirmed
    }

    /// Deletes the node, with retries until it is certainly gone.
    async fn delete(&self) -> Result<Released, ZkFailure> {
        loop {
            let node = match self.known_node() {
                KnownNode::Gone | KnownNode::Never => return Ok(Released::AlreadyLost),
                KnownNode::At(node) => node,
                KnownNode::Unknown { is_directory_new } => match self.find().await {
                    Ok(FoundNode::At(node)) => node,
                    Ok(FoundNode::Missing { directory }) => {
                        if is_directory_new && let Some(directory) = directory {
                            self.delete_unused(&directory).await;
                        }
                        return self.found_gone();
                    }
                    Err(failure) if failure.is_over() => return self.found_over(),
                    Err(failure) if failure.is_ambiguous() => {
                        sleep(RETRY_BACKOFF).await;
                        continue;
                    }
                    Err(failure) => return Err(failure),
                },
            };
            let deleted = self.session.client.delete(&self.path(&node), None).await;
            match deleted.map_err(ZkFailure::from) {
                Ok(()) => return Ok(Released::Clean),
                Err(failure) if failure.is_over() => return self.found_over(),
                Err(failure) if failure.is_no_node() => return self.found_gone(),
                // The next one waits until the client is connected again.
                Err(failure) if failure.is_ambiguous() => {
                    self.is_deleted_perhaps.store(true, Ordering::Relaxed);
                    sleep(RETRY_BACKOFF).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

#[async_trait]
impl Lease for ZooKeeperLease {
    fn liveness(&self) -> Liveness {
        Liveness::Reported
    }

    fn attach(&self, control: LeaseControl) {
        if let Some(node) = self.node() {
            let seen = Moment::from_nanos(self.seen.load(Ordering::Relaxed));
            self.session
                .attach(self.id, self.path(&node), &control, seen);
        }
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let Some(node) = self.node() else {
            return Ok(None);
        };
        let path = self.path(&node);
        let written = self.session.client.set_data(&path, &self.data, None).await;
        let stat = written.map_err(ZkFailure::from)?;
        Ok(Some(self.drawn(stat.mzxid)?))
    }

    async fn downgrade(&self) -> Result<()> {
        // A search that an earlier downgrade has left reports the path of the node, which is old once this one
        // has begun.
        let search = Arc::clone(&self.search).lock_owned().await;
        let node = match self.known_node() {
            KnownNode::At(node) => node,
            KnownNode::Unknown { .. } => match self.find().await {
                Ok(FoundNode::At(node)) => node,
                Ok(FoundNode::Missing { .. }) => return Err(Error::lost(LostReason::Broken)),
                // This says nothing of the earlier one.
                Err(failure) => return Err(Error::from(failure).with_unknown_outcome()),
            },
            KnownNode::Gone | KnownNode::Never => {
                return Err(ZkFailure::Malformed("a holder without a node".to_owned()).into());
            }
        };
        if node.contender.mode == Mode::Shared {
            // An earlier one was done.
            return Ok(());
        }
        if node.contender.sequence.is_used_up() {
            // Contenders with such numbers queue by creation, so the new node would be last.
            let message = "the numbers of this lock are used up, and begin again once it is free";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.downgraded(&node, search).await
    }

    async fn release(&self) -> Result<Released> {
        self.session.detach(self.id);
        let released = self.delete().await.map_err(|failure| {
            let error = Error::from(failure);
            // A refused retry does not show whether the first deletion was executed.
            match self.is_deleted_perhaps.swap(false, Ordering::Relaxed) {
                true => error.with_unknown_outcome(),
                false => error,
            }
        })?;
        let node = self.node();
        if let Some(node) = node.filter(|node| node.contender.sequence.is_used_up()) {
            self.begin_anew(&node).await;
        }
        Ok(released)
    }
}

impl ZooKeeperLease {
    /// Whether the directory must stay: a kazoo `Lock` ensures its directory once, and fails if it is gone later.
    fn keeps_directory(&self) -> bool {
        self.config.compat == Compat::Kazoo
    }

    /// Deletes the directory that this contender has made, unless another contender has used it. ZooKeeper removes
    /// only directories that had a child.
    ///
    /// The server refuses if the directory has a child by then. A contender that comes later makes another
    /// directory. One request without a retry: no lock depends on it.
    async fn delete_unused(&self, directory: &Stat) {
        if self.keeps_directory() || !is_unused(directory) {
            return;
        }
        let path = self.directory.path();
        let deleted = self.session.client.delete(path, Some(FIRST_VERSION)).await;
        if let Err(error) = deleted {
            tracing::debug!(directory = %self.directory, %error, "an unused directory may stay");
        }
    }

    /// Deletes the directory if it is empty, so that the numbers of the next one begin at 0 again. One that must
    /// stay keeps its order of creation.
    async fn begin_anew(&self, node: &ZkNode) {
        if self.keeps_directory() {
            return;
        }
        let deleted = self
            .session
            .client
            .delete(self.directory.path(), None)
            .await;
        let sequence = node.contender.sequence.0;
        tracing::warn!(directory = %self.directory, sequence, ?deleted, "sequence numbers used up");
    }
}

impl Drop for ZooKeeperLease {
    fn drop(&mut self) {
        self.session.detach(self.id);
    }
}

impl fmt::Debug for ZooKeeperLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperLease")
            .field("directory", &self.directory)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// What is known of the node of a contender.
#[derive(Clone, Debug)]
pub(crate) enum KnownNode {
    /// Nothing was sent that could have created one.
    Never,
    /// It may be there, under a name that begins with one of the stems.
    Unknown {
        /// The contender has made the directory for it, or may have.
        is_directory_new: bool,
    },
    /// It was there under this name.
    At(ZkNode),
    /// It has ended, and a release has reported an unknown outcome. Another release has nothing to delete.
    Gone,
}

/// The node of a contender.
#[derive(Clone, Debug)]
pub(crate) struct ZkNode {
    pub(crate) contender: ZkContender,
    /// When it was created, in transactions.
    pub(crate) czxid: i64,
}

/// What a search for the node of a contender has found.
pub(crate) enum FoundNode {
    At(ZkNode),
    Missing {
        /// `None` if it is missing as well.
        directory: Option<Stat>,
    },
}

/// Whether this is a directory as contenders make them, without a contender so far. Another program may have made
/// a node in its place.
fn is_unused(directory: &Stat) -> bool {
    let is_ephemeral = directory.ephemeral_owner != 0;
    let is_written = directory.version != FIRST_VERSION || directory.data_length > 0;
    directory.cversion == 0 && !is_ephemeral && !is_written
}

/// The version of data that was never changed.
const FIRST_VERSION: i32 = 0;

/// Looks for the node of a contender, whose name begins with one of the stems, as the ensemble has it
/// now.
///
/// The requests of a session are carried out in their order, so this comes after the request that may
/// have created the node. A leader that was replaced may not have the node, and answers `sync` without
/// the other servers. It commits nothing, so a committed write precedes the list.
pub(crate) async fn find(
    session: &ZkSession,
    directory: &Directory,
    stems: &[String],
) -> Result<FoundNode, ZkFailure> {
    let client = &session.client;
    // A request leaves when it is made: the list is made after the write.
    let listed = async { client.get_children(directory.path()).await };
    let (written, listed) = join!(session.prove(), listed);
    match written {
        // The root is gone with all nodes; a majority has agreed to that answer as well.
        Ok(()) | Err(ClientError::NoNode) => {}
        Err(error) => return Err(error.into()),
    }
    let (names, stat) = match listed {
        Err(ClientError::NoNode) => return Ok(FoundNode::Missing { directory: None }),
        listed => listed?,
    };
    let missing = FoundNode::Missing {
        directory: Some(stat),
    };
    let is_it = |name: &&String| stems.iter().any(|stem| name.starts_with(stem));
    let Some(name) = names.iter().find(is_it) else {
        return Ok(missing);
    };
    let contender = ZkContender::parse(name);
    let contender = contender.ok_or_else(|| ZkFailure::Misnamed(name.clone()))?;
    let path = directory.child(name);
    let Some(stat) = client.check_stat(&path).await? else {
        return Ok(missing);
    };
    if !session.owns(&stat) {
        // The client has another session than it knows of; nothing can be said of this one. The other
        // may last, and the node with it. It is deleted after its holder was notified.
        session.end();
        session.delete_nodes([path.into()]);
        return Err(ClientError::SessionExpired.into());
    }
    let czxid = stat.czxid;
    Ok(FoundNode::At(ZkNode { contender, czxid }))
}
