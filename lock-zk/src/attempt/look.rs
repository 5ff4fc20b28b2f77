//! What an attempt sees of the line.

use futures_util::future::join_all;
use lock_core::engine::Moment;
use zookeeper_client::{Error as ClientError, Stat};

use super::{Attempt, AttemptError};
use crate::error::PAUSE;
use crate::node::Node;
use crate::recipe::names::Contender;
use crate::recipe::queue_position::{
    QueuePosition, by_creation, contenders_in_order, out_of_numbers, queue_position,
};

/// The directory as it was seen.
pub(super) struct Seen {
    pub(super) names: Vec<String>,
    /// The last change of its children.
    pub(super) pzxid: i64,
    /// When the request for it left.
    pub(super) sent: Moment,
}

impl Seen {
    pub(super) fn new(names: Vec<String>, directory: &Stat, sent: Moment) -> Self {
        let pzxid = directory.pzxid;
        Self { names, pzxid, sent }
    }
}

impl Attempt<'_> {
    pub(super) async fn list(&self) -> Result<Seen, AttemptError> {
        let until = self.budget.step();
        loop {
            let sent = self.client.engine.now();
            let path = self.lease.directory.path();
            let listed = self.lease.session.client.get_children(path);
            match self.until(until, listed).await? {
                Ok((names, directory)) => return Ok(Seen::new(names, &directory, sent)),
                // The directory was deleted with all its contents.
                Err(ClientError::NoNode) => return Err(AttemptError::Gone),
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    /// The first contender is not granted the lock on an old answer, nor before there is evidence
    /// that the session lasts: heartbeats provide it soon after an outage.
    pub(super) async fn look_again(&self) -> Result<Seen, AttemptError> {
        if self.lease.session.is_over() {
            return Err(AttemptError::Gone);
        }
        if self.budget.is_spent() {
            return Err(AttemptError::Late);
        }
        tokio::time::sleep(PAUSE).await;
        self.list().await
    }

    /// After a break: whether the session of the connection has the node. The client may have been given
    /// another one without a word, while the node of the old one is still there.
    pub(super) async fn look_at_own(&self, node: &Node) -> Result<(), AttemptError> {
        let until = self.budget.step();
        let (client, path) = (&self.lease.session.client, self.lease.path(node));
        loop {
            let owned = client.list_ephemerals(&path);
            match self.until(until, owned).await? {
                Ok(owned) if owned.contains(&path) => return Ok(()),
                Ok(_) => return Err(AttemptError::Gone),
                // Servers before 3.6.
                Err(ClientError::Unimplemented) => return Ok(()),
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    /// Where the node stands in the line that was seen, or in a later one if that one does not tell.
    pub(super) async fn queue_position(
        &self,
        seen: &mut Seen,
        node: &Node,
    ) -> Result<QueuePosition, AttemptError> {
        let own = &node.contender.name;
        loop {
            let mut line = contenders_in_order(seen.names.iter().map(String::as_str), Some(own));
            let contenders = line.len();
            self.order_by_creation(&mut line).await?;
            let queue_position = queue_position(&line, own);
            if queue_position == QueuePosition::Holds && line.len() < contenders {
                // A contender has gone since: the last change that was seen is older than the
                // evidence that this one is the first, and would make another holder's token.
                *seen = self.list().await?;
                continue;
            }
            return Ok(queue_position);
        }
    }

    /// Asks when those contenders were created whose numbers do not tell.
    async fn order_by_creation(&self, line: &mut Vec<Contender>) -> Result<(), AttemptError> {
        let names: Vec<_> = out_of_numbers(line)
            .map(|contender| contender.name.clone())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let until = self.budget.step();
        let (client, directory) = (&self.lease.session.client, &self.lease.directory);
        loop {
            let stats = names.iter().map(|name| {
                let path = directory.child(name);
                async move { client.check_stat(&path).await }
            });
            let stats = self.until(until, join_all(stats)).await?;
            let stats: Result<Vec<_>, _> = stats.into_iter().collect();
            match stats {
                Ok(stats) => {
                    let created = names.into_iter().zip(stats);
                    let created = created.filter_map(|(name, stat)| Some((name, stat?.czxid)));
                    by_creation(line, &created.collect());
                    return Ok(());
                }
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }
}
