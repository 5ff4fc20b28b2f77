use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::join;
use lock_core::engine::LeaseId;
use lock_core::{
    AcquireRequest, Error, ErrorKind, FencingToken, Lease, LeaseControl, Released, Result, Upkeep,
};
use zookeeper_client::{CreateMode, Error as ClientError, MultiWriteError};

use crate::acl::acls;
use crate::config::ZooKeeperConfig;
use crate::directory::Directory;
use crate::error::Failure;
use crate::names::{Contender, shared_name, stem};
use crate::node::{Known, Node, NodeState};
use crate::session::Session;
use crate::tokens::Tokens;

/// One contender: an ephemeral node in the directory of its key.
pub(crate) struct ZooKeeperLease {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: Directory,
    pub(crate) id: LeaseId,
    /// What the name of the node begins with.
    pub(crate) stem: String,
    /// What the node has to say: the label of the contender.
    pub(crate) data: Vec<u8>,
    pub(crate) node: NodeState,
    config: Arc<ZooKeeperConfig>,
    tokens: Tokens,
    /// A request to delete the node had no answer.
    is_deleted_perhaps: AtomicBool,
}

impl ZooKeeperLease {
    pub(crate) fn new(
        session: Arc<Session>,
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
            node: NodeState::default(),
            config: Arc::clone(config),
            tokens: Tokens::default(),
            is_deleted_perhaps: AtomicBool::new(false),
        }
    }

    /// Looks for the node by its stem, as the ensemble has it now; notes what is found.
    ///
    /// The requests of a session are carried out in their order, so this comes after the request that
    /// may have created the node, and a server that is behind is brought up to date first.
    pub(crate) async fn find(&self) -> Result<Option<Node>, Failure> {
        let client = &self.session.client;
        let synced = client.sync(self.directory.path());
        let listed = client.list_children(self.directory.path());
        let (synced, listed) = join!(synced, listed);
        let names = match (synced, listed) {
            (_, Err(ClientError::NoNode)) => return Ok(None),
            (Ok(()), Ok(names)) => names,
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        };
        let Some(name) = names.iter().find(|name| name.starts_with(&self.stem)) else {
            return Ok(None);
        };
        let contender = Contender::parse(name);
        let contender = contender.ok_or_else(|| Failure::protocol("a node without a number"))?;
        let Some(stat) = client.check_stat(&self.directory.child(name)).await? else {
            return Ok(None);
        };
        if !self.session.owns(&stat) {
            // The client has another session than it knows of; nothing can be said of this one.
            self.session.end();
            return Err(ClientError::SessionExpired.into());
        }
        let czxid = stat.czxid;
        let node = Node { contender, czxid };
        self.node.set(Known::At(node.clone()));
        Ok(Some(node))
    }

    /// The token of a holder whom this transaction proves to be one.
    pub(crate) fn drawn(&self, zxid: i64) -> Result<FencingToken, Failure> {
        let token = self.tokens.begin(zxid);
        token.ok_or_else(|| Failure::protocol(&format!("transaction {zxid:#x} makes no token")))
    }

    pub(crate) fn path(&self, node: &Node) -> String {
        self.directory.child(&node.contender.name)
    }

    /// Deletes the node, again and again until it is gone for certain.
    async fn delete(&self) -> Result<Released, Failure> {
        loop {
            if self.session.is_over() {
                return Ok(Released::AlreadyLost);
            }
            let node = match self.node.get() {
                Known::Never => return Ok(Released::AlreadyLost),
                Known::At(node) => Ok(Some(node)),
                Known::Perhaps => self.find().await,
            };
            let deleted = match node {
                Ok(None) => return Ok(Released::AlreadyLost),
                Ok(Some(node)) => {
                    let deleted = self.session.client.delete(&self.path(&node), None).await;
                    deleted.map_err(Failure::from)
                }
                Err(failure) => Err(failure),
            };
            match deleted {
                Ok(()) => return Ok(Released::Clean),
                Err(failure) if failure.is_over() => return Ok(Released::AlreadyLost),
                Err(failure) if is_gone(&failure) => {
                    return Ok(match self.is_deleted_perhaps.load(Ordering::Relaxed) {
                        true => Released::Clean,
                        false => Released::AlreadyLost,
                    });
                }
                // The next one waits until the client is connected again.
                Err(failure) if failure.is_ambiguous() => {
                    self.is_deleted_perhaps.store(true, Ordering::Relaxed);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Puts a shared contender in the place of the exclusive one, in one transaction: whoever waits for
    /// the end of the node wakes, and finds a reader with the same number.
    async fn downgraded(&self, node: &Node) -> Result<(), Failure> {
        let name = shared_name(self.config.compat, self.id, &node.contender);
        let contender = Contender::parse(&name);
        let contender = contender.ok_or_else(|| Failure::protocol("a node without a number"))?;
        let (before, path) = (self.path(node), self.directory.child(&name));
        // The end of the old node is told before the answer.
        self.session.begin_move(self.id, path.clone());
        let exchanged = self.exchange(&before, &path).await;
        let is_at = if exchanged.is_ok() { path } else { before };
        self.session.end_move(self.id, is_at);
        if exchanged.is_ok() {
            let czxid = node.czxid;
            self.node.set(Known::At(Node { contender, czxid }));
        }
        exchanged
    }

    /// Creates one node and deletes another.
    async fn exchange(&self, delete: &str, create: &str) -> Result<(), Failure> {
        let client = &self.session.client;
        let options = CreateMode::Ephemeral.with_acls(acls(self.config.access()));
        let token = format!("{TOKEN}{}", self.tokens.last());
        let data = [&self.data, token.as_bytes()].concat();
        loop {
            let mut both = client.new_multi_writer();
            both.add_create(create, &data, &options)?;
            both.add_delete(delete, None)?;
            let failure = match both.commit().await {
                Ok(_) => return Ok(()),
                Err(MultiWriteError::OperationFailed { source, .. }) => match source {
                    // An earlier one had no answer.
                    ClientError::NodeExists => return Ok(()),
                    source => return Err(source.into()),
                },
                Err(MultiWriteError::RequestFailed { source }) => Failure::from(source),
            };
            if !failure.is_ambiguous() {
                return Err(failure);
            }
        }
    }
}

#[async_trait]
impl Lease for ZooKeeperLease {
    fn upkeep(&self) -> Upkeep {
        Upkeep::Reported
    }

    fn attach(&self, control: LeaseControl) {
        if let Some(node) = self.node.at() {
            self.session.attach(self.id, self.path(&node), control);
        }
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let Some(node) = self.node.at() else {
            return Ok(None);
        };
        let path = self.path(&node);
        let written = self.session.client.set_data(&path, &self.data, None).await;
        let stat = written.map_err(Failure::from)?;
        Ok(Some(self.drawn(stat.mzxid)?))
    }

    async fn downgrade(&self) -> Result<()> {
        let Some(node) = self.node.at() else {
            return Err(Failure::protocol("a holder without a node").into());
        };
        if node.contender.sequence.is_used_up() {
            // Order by creation would put the new node behind all others.
            let message = "the numbers of this lock are used up, and begin anew once nobody has it";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(self.downgraded(&node).await?)
    }

    async fn release(&self) -> Result<Released> {
        self.session.detach(self.id);
        let released = self.delete().await?;
        if let Some(node) = self
            .node
            .at()
            .filter(|node| node.contender.sequence.is_used_up())
        {
            self.begin_anew(&node).await;
        }
        Ok(released)
    }
}

impl ZooKeeperLease {
    /// Deletes the directory if nobody is in it: in the next one the numbers begin at 0 again.
    async fn begin_anew(&self, node: &Node) {
        let deleted = self
            .session
            .client
            .delete(self.directory.path(), None)
            .await;
        let sequence = node.contender.sequence.0;
        tracing::warn!(directory = %self.directory, sequence, ?deleted, "sequence numbers used up");
    }
}

fn is_gone(failure: &Failure) -> bool {
    matches!(failure.client(), Some(ClientError::NoNode))
}

/// The token that the data of a node tells, where its transactions do not: a contender that was
/// downgraded keeps its token in a new node.
pub(crate) fn noted_token(data: &[u8]) -> Option<FencingToken> {
    let (_, token) = std::str::from_utf8(data).ok()?.rsplit_once(TOKEN)?;
    token.parse().ok().map(FencingToken::new)
}

/// Behind the label, which skips what it does not know.
const TOKEN: &str = "&token=";

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
