//! How a contender goes into line.

use futures_util::join;
use tokio::time::Instant;
use zookeeper_client::{CreateMode, Error as ClientError};

use super::look::Seen;
use super::{Attempt, AttemptError};
use crate::acl::acls;
use crate::config::Compat;
use crate::error::Failure;
use crate::node::{Known, Node};
use crate::recipe::names::Contender;
use crate::root::make_root;

impl Attempt<'_> {
    /// Creates the node and lists the directory, in one round trip: the list is that after the creation.
    pub(super) async fn enter(&self) -> Result<(Node, Seen), AttemptError> {
        let until = self.budget.step();
        let (client, lease) = (&self.lease.session.client, self.lease);
        let options = CreateMode::EphemeralSequential.with_acls(acls(self.client.access()));
        let stem = lease.directory.child(&lease.stem);
        loop {
            lease.node.set(Known::Unknown);
            let sent = self.client.engine.now();
            // Both are sent here, in this order.
            let created = client.create(&stem, &lease.data, &options);
            let listed = client.get_children(lease.directory.path());
            let (created, listed) = self.until(until, async { join!(created, listed) }).await?;
            let node = match created.map_err(Failure::from) {
                Ok((stat, number)) => {
                    let contender = Contender::parse(&format!("{}{number}", lease.stem));
                    let contender = contender.ok_or_else(|| not_understood(&number))?;
                    let czxid = stat.czxid;
                    let node = Node { contender, czxid };
                    lease.node.set(Known::At(node.clone()));
                    if !lease.session.owns(&stat) {
                        // It is in a session that this client does not know of.
                        lease.session.end();
                        return Err(AttemptError::Gone);
                    }
                    lease.session.committed(sent);
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
                Ok((names, directory)) => Seen::new(names, &directory, sent),
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
    async fn find(&self, until: Instant) -> Result<Option<Node>, AttemptError> {
        loop {
            match self.until(until, self.lease.find()).await? {
                Ok(found) => return Ok(found),
                Err(failure) => self.pause_if_ambiguous(failure).await?,
            }
        }
    }

    /// Creates the directory, which ZooKeeper removes after a while without use; except for kazoo,
    /// which ensures it once and fails if it is gone later.
    async fn make_directory(&self, until: Instant) -> Result<(), AttemptError> {
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
}

fn is(failure: &Failure, error: &ClientError) -> bool {
    failure.client() == Some(error)
}

fn not_understood(number: &impl std::fmt::Display) -> AttemptError {
    AttemptError::Failed(Failure::protocol(&format!(
        "a node with the number {number}"
    )))
}
