//! A holder that becomes a reader, by another node in the place of its own.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::engine::LeaseId;
use tokio::time::sleep;
use zookeeper_client::{CreateMode, Error as ClientError, MultiWriteError};

use crate::acl::acls;
use crate::directory::Directory;
use crate::error::Failure;
use crate::find::find;
use crate::lease::ZooKeeperLease;
use crate::names::{Contender, shared_name};
use crate::node::{Known, Node};
use crate::session::Session;

impl ZooKeeperLease {
    /// Puts a shared contender in the place of the exclusive one, in one transaction: whoever waits for
    /// the end of the node wakes, and finds a reader with the same number.
    ///
    /// Where this is dropped, one of the two nodes is there, and the release finds it.
    pub(crate) async fn downgraded(&self, node: &Node) -> Result<(), Failure> {
        let name = shared_name(self.config.compat, self.id, &node.contender);
        let contender = Contender::parse(&name);
        let contender = contender.ok_or_else(|| Failure::protocol("a node without a number"))?;
        let (before, path) = (self.path(node), self.directory.child(&name));
        // The end of the old node is told before the answer.
        self.session.begin_move(self.id, path.clone());
        self.node.set(Known::Perhaps);
        let moving = Moving {
            session: &self.session,
            directory: &self.directory,
            stems: self.stems(),
            id: self.id,
            path: &path,
            is_over: false,
        };
        let exchanged = self.exchange(&before, &path).await;
        let czxid = node.czxid;
        let (node, is_at) = match &exchanged {
            Ok(()) => (Node { contender, czxid }, &path),
            Err(_) => (node.clone(), &before),
        };
        self.node.set(Known::At(node));
        moving.ends(is_at.clone());
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

/// A node that is about to get another name.
struct Moving<'a> {
    session: &'a Arc<Session>,
    directory: &'a Directory,
    stems: [String; 2],
    id: LeaseId,
    path: &'a str,
    is_over: bool,
}

impl Moving<'_> {
    fn ends(mut self, path: String) {
        self.is_over = true;
        self.session.end_move(self.id, path);
    }
}

impl Drop for Moving<'_> {
    /// Where nobody waits for the answer, the name is found out in the background.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (session, directory) = (Arc::clone(self.session), self.directory.clone());
        let (stems, id, path) = (take(&mut self.stems), self.id, self.path.to_owned());
        self.session.in_background(async move {
            while !session.is_over() {
                match find(&session, &directory, &stems).await {
                    Ok(Some(node)) => {
                        return session.end_move(id, directory.child(&node.contender.name));
                    }
                    Ok(None) => return session.node_gone(id, &path),
                    Err(_) => sleep(PAUSE).await,
                }
            }
        });
    }
}

/// Between a broken connection and the next request.
const PAUSE: Duration = Duration::from_millis(20);

/// The token that the data of a node tells, where its transactions do not: a contender that was
/// downgraded keeps its token in a new node.
pub(crate) fn noted_token(data: &[u8]) -> Option<FencingToken> {
    let (_, token) = std::str::from_utf8(data).ok()?.rsplit_once(TOKEN)?;
    token.parse().ok().map(FencingToken::new)
}

/// Behind the label, which skips what it does not know.
const TOKEN: &str = "&token=";
