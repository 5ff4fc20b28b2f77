//! Downgrades: a holder becomes a reader by replacing its node.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::{Error, FencingToken, LostReason, Result};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep};
use zookeeper_client::{CreateMode, Error as ClientError, MultiWriteError};

use crate::error::{RETRY_BACKOFF, ZkFailure};
use crate::lease::{FoundNode, KnownNode, ZkNode, ZooKeeperLease, find};

impl ZooKeeperLease {
    /// Replaces the exclusive contender with a shared one in one transaction. A waiter that watches the old
    /// node wakes, and finds a reader with the same number.
    ///
    /// If this is dropped or fails without a definite answer, one of the two nodes exists, and the release or a
    /// repetition finds it. No other downgrade begins before `search` is dropped.
    pub(crate) async fn downgraded(
        &self,
        node: &ZkNode,
        search: OwnedMutexGuard<()>,
    ) -> Result<()> {
        let contender = node.contender.downgraded();
        let contender =
            contender.ok_or_else(|| ZkFailure::Misnamed(node.contender.name.clone()))?;
        let (before, path) = (self.path(node), self.directory.child(&contender.name));
        // The end of the old node is reported before the answer.
        self.session.begin_move(self.id, path.clone());
        self.set_node(KnownNode::Unknown {
            is_directory_new: false,
        });
        let moving = Moving {
            lease: self,
            before: &before,
            path: &path,
            search: Some(search),
        };
        let czxid = node.czxid;
        match self.exchange(&before, &path).await {
            NodeExchange::Done => {
                self.set_node(KnownNode::At(ZkNode { contender, czxid }));
                moving.ends(path.clone());
                Ok(())
            }
            NodeExchange::Refused(failure) => {
                self.set_node(KnownNode::At(node.clone()));
                moving.ends(before.clone());
                Err(failure.into())
            }
            NodeExchange::Gone => {
                moving.finds_nothing();
                Err(Error::lost(LostReason::Broken))
            }
            NodeExchange::Unknown(failure) => Err(Error::from(failure).with_unknown_outcome()),
        }
    }

    /// Creates one node and deletes another.
    async fn exchange(&self, delete: &str, create: &str) -> NodeExchange {
        let client = &self.session.client;
        let options = CreateMode::Ephemeral.with_acls(self.config.acls());
        let token = format!("{TOKEN}{}", self.tokens.current());
        let data = [&self.data, token.as_bytes()].concat();
        let mut is_done_perhaps = false;
        loop {
            let mut both = client.new_multi_writer();
            let added = both.add_create(create, &data, &options);
            let added = added.and_then(|()| both.add_delete(delete, None));
            let committed = match added {
                Ok(()) => both.commit().await.map(drop),
                Err(source) => Err(MultiWriteError::RequestFailed { source }),
            };
            let failure = match committed {
                Ok(()) => return NodeExchange::Done,
                Err(MultiWriteError::OperationFailed { source, .. }) => match source {
                    // An earlier one had no answer.
                    ClientError::NodeExists => return NodeExchange::Done,
                    ClientError::NoNode => return NodeExchange::Gone,
                    source => ZkFailure::from(source),
                },
                Err(MultiWriteError::RequestFailed { source }) => ZkFailure::from(source),
            };
            if failure.is_ambiguous() {
                is_done_perhaps = true;
                sleep(RETRY_BACKOFF).await;
            } else if is_done_perhaps {
                return NodeExchange::Unknown(failure);
            } else {
                return NodeExchange::Refused(failure);
            }
        }
    }
}

/// How an exchange of two nodes ends.
enum NodeExchange {
    Done,
    /// The old node is there as before.
    Refused(ZkFailure),
    /// The node was deleted, under either name.
    Gone,
    /// One of the two nodes exists, if the session does.
    Unknown(ZkFailure),
}

/// A node that is about to get another name.
struct Moving<'a> {
    lease: &'a ZooKeeperLease,
    before: &'a str,
    path: &'a str,
    /// `None` once the name is known.
    search: Option<OwnedMutexGuard<()>>,
}

impl Moving<'_> {
    fn finds_nothing(mut self) {
        self.search = None;
        self.lease.session.node_gone(self.lease.id, self.path);
    }

    fn ends(mut self, path: String) {
        self.search = None;
        let lease = self.lease;
        let session = &lease.session;
        session.end_move(lease.id, path, &lease.is_deleted_in_background);
    }
}

impl Drop for Moving<'_> {
    /// Without a reply, or without a caller, looks for the name in the background.
    fn drop(&mut self) {
        let Some(search) = self.search.take() else {
            return;
        };
        let (lease, path) = (self.lease, self.path.to_owned());
        let either = [Arc::from(self.before), Arc::from(self.path)];
        let (session, directory) = (Arc::downgrade(&lease.session), lease.directory.clone());
        let (stems, id) = (lease.stems(), lease.id);
        // For a release that comes after this deletion.
        let is_deleted_in_background = Arc::clone(&lease.is_deleted_in_background);
        lease.session.in_background(async move {
            let _search = search;
            let mut refused = None;
            // Continues after the end of the session here, because the server may keep it.
            while let Some(session) = session.upgrade() {
                match find(&session, &directory, &stems).await {
                    Ok(FoundNode::At(node)) => {
                        let path = directory.child(&node.contender.name);
                        return session.end_move(id, path, &is_deleted_in_background);
                    }
                    Ok(FoundNode::Missing { .. }) => return session.node_gone(id, &path),
                    // The end of the session is reported by itself.
                    Err(failure) if failure.is_over() => return,
                    Err(failure) if failure.is_retryable() => {}
                    // The release says what is wrong, and cannot find the node either. The session may last.
                    Err(_) if is_over(&mut refused) => {
                        session.lose(id);
                        return session.delete_nodes(either);
                    }
                    Err(_) => {}
                }
                drop(session);
                sleep(RETRY_BACKOFF).await;
            }
        });
    }
}

/// Whether refusals have lasted for too long; `since` is the first one.
fn is_over(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() >= REFUSED_FOR
}

/// How long a look may be refused, or answered unclearly. Meanwhile a connection that breaks puts all locks
/// of the session in doubt, for half of its timeout of 2 s or more.
const REFUSED_FOR: Duration = Duration::from_millis(500);

/// Reads the token in a node's data: a downgraded contender keeps its token in a new node, whose
/// transactions would give another one.
pub(crate) fn noted_token(data: &[u8]) -> Option<FencingToken> {
    let (_, token) = std::str::from_utf8(data).ok()?.rsplit_once(TOKEN)?;
    token.parse().ok().map(FencingToken::new)
}

/// Follows the label, whose parser skips what it does not know.
const TOKEN: &str = "&token=";
