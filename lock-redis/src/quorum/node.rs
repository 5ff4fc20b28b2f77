use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use polylock_core::engine::Engine;
use polylock_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

use super::clock::ServerClock;
use super::rejoin::KnownRun;
use super::votes::{is_too_few, majority};
use crate::error::RedisFailure;
use crate::held_leases::HeldRedisLeases;
use crate::server::Server;

/// One independent master.
#[derive(Debug)]
pub(super) struct QuorumNode {
    /// Its index among the nodes.
    pub(super) number: usize,
    pub(super) server: Server,
    pub(super) name: String,
    pub(super) engine: Engine,
    /// How long the node keeps the token counter of a lock after its last grant, in ms.
    pub(super) retention: String,
    pub(super) clock: ServerClock,
    pub(super) rejoin_delay: Duration,
    pub(super) run: Mutex<Option<KnownRun>>,
    pub(super) watcher: Mutex<Option<JoinHandle<()>>>,
}

/// The independent masters, all of them.
#[derive(Debug)]
pub(super) struct Quorum {
    pub(super) nodes: Vec<Arc<QuorumNode>>,
    pub(super) engine: Engine,
    pub(super) held_leases: Arc<HeldRedisLeases>,
}

/// The replies of nodes to a request, in order of arrival, each with the number of its node.
///
/// All requests have been sent once the first reply arrives. If dropped earlier, some may not be sent.
pub(super) type NodeReplies<'f, T> = FuturesUnordered<BoxFuture<'f, (usize, T)>>;

/// Waits for the slow nodes.
pub(super) async fn await_rest<T>(mut answers: NodeReplies<'static, T>) {
    while answers.next().await.is_some() {}
}

impl Quorum {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Asks all nodes at once.
    ///
    /// The order is always the same: of two competing clients, the first at one node is usually the
    /// first at all nodes.
    pub(super) fn ask<'f, T, F>(
        &self,
        question: impl Fn(Arc<QuorumNode>) -> F,
    ) -> NodeReplies<'f, T>
    where
        F: Future<Output = T> + Send + 'f,
    {
        self.ask_some(|_| true, question)
    }

    /// Asks the nodes whose number is `among`.
    pub(super) fn ask_some<'f, T, F>(
        &self,
        among: impl Fn(usize) -> bool,
        question: impl Fn(Arc<QuorumNode>) -> F,
    ) -> NodeReplies<'f, T>
    where
        F: Future<Output = T> + Send + 'f,
    {
        let nodes = self.nodes.iter().enumerate();
        let asked = nodes.filter(|(number, _)| among(*number));
        let answers = asked.map(|(number, node)| {
            let answer = question(Arc::clone(node));
            async move { (number, answer.await) }.boxed()
        });
        answers.collect()
    }

    /// Asks all nodes, and returns the replies if a majority has replied.
    pub(super) async fn ask_all<T, F>(
        &self,
        question: impl Fn(Arc<QuorumNode>) -> F,
    ) -> Result<Vec<T>>
    where
        F: Future<Output = Result<T, RedisFailure>> + Send,
    {
        let (mut answered, mut failures) = (Vec::new(), Vec::new());
        let mut answers = self.ask(question);
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(answer) => answered.push(answer),
                Err(failure) => failures.push(failure),
            }
        }
        if self.is_too_few(failures.len()) {
            return Err(self.unavailable(&failures, &[]));
        }
        Ok(answered)
    }

    /// Whether so many failures rule out a majority.
    pub(super) fn is_too_few(&self, failed: usize) -> bool {
        is_too_few(self.len(), failed)
    }

    /// The error of an operation with too few replies; `rejoining` are nodes that are up but do not
    /// vote.
    pub(super) fn unavailable(&self, failures: &[RedisFailure], rejoining: &[String]) -> Error {
        let lasting = failures.iter().filter(|failure| !failure.is_retryable());
        // Reports a failure that is not retryable, if such failures alone rule out a majority.
        let kind = match lasting.clone().next() {
            Some(first) if self.is_too_few(lasting.count()) => Error::from(first.clone()).kind(),
            _ => ErrorKind::Unavailable,
        };
        let causes = failures.iter().map(|failure| failure.cause.to_string());
        let causes: Vec<_> = causes.chain(rejoining.iter().cloned()).collect();
        let verb = match rejoining.is_empty() {
            true => "answer",
            false => "vote",
        };
        let message = format!(
            "fewer than {} of {} nodes {verb}: {}",
            majority(self.len()),
            self.len(),
            causes.join("; ")
        );
        let error = Error::new(kind, message);
        if failures.iter().any(|failure| failure.outcome_unknown) {
            error.with_unknown_outcome()
        } else {
            error
        }
    }
}
