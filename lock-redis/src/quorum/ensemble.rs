use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::engine::Engine;
use lock_core::{Error, ErrorKind};

use super::listen::Listening;
use super::node::Node;
use super::notices::Notices;
use super::vote::majority;
use crate::error::Failure;

/// The independent masters, all of them.
#[derive(Debug)]
pub(super) struct Ensemble {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) engine: Engine,
    pub(super) rejoin_delay: Duration,
    pub(super) notices: Arc<Notices>,
    pub(super) listening: Listening,
}

/// A question to several nodes, with the answers in the order in which they come.
///
/// Every request has left after the first answer, unless a node is asked for its time first; dropped
/// earlier, some may not have.
pub(super) type Asking<T> = FuturesUnordered<Pin<Box<dyn Future<Output = (usize, T)> + Send>>>;

impl Ensemble {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Asks the nodes whose number is `among`, all at once.
    ///
    /// In the same order each time: of two that compete, the one that is first with one node is
    /// mostly first with all.
    pub(super) fn ask<T, F>(
        &self,
        among: impl Fn(usize) -> bool,
        question: impl Fn(Arc<Node>) -> F,
    ) -> Asking<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let asking = FuturesUnordered::new();
        for (number, node) in self.nodes.iter().enumerate() {
            if among(number) {
                let answer = question(Arc::clone(node));
                let numbered: Pin<Box<dyn Future<Output = (usize, T)> + Send>> =
                    Box::pin(async move { (number, answer.await) });
                asking.push(numbered);
            }
        }
        asking
    }

    /// The answers of all nodes to a question that may fail, and the failures.
    pub(super) async fn ask_all<T, F>(
        &self,
        question: impl Fn(Arc<Node>) -> F,
    ) -> (Vec<T>, Vec<Failure>)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        let mut asking = self.ask(|_| true, question);
        while let Some((_, answer)) = asking.next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failure) => failures.push(failure),
            }
        }
        (answers, failures)
    }

    /// Tells the nodes that are watched how old they are, as far as this client knows.
    pub(super) async fn tell_ages(&self) {
        let is_watched = |node: usize| self.nodes[node].is_watched.load(Ordering::Acquire);
        let mut told = self.ask(is_watched, |node| async move { node.compare_ages().await });
        while told.next().await.is_some() {}
    }

    /// Whether so many failures leave no majority.
    pub(super) fn is_too_few(&self, failed: usize) -> bool {
        self.len() - failed < majority(self.len())
    }

    /// The error of an operation that too few nodes have answered; `others` are those that are up
    /// and do not vote.
    pub(super) fn silence(&self, failures: &[Failure], others: &[String]) -> Error {
        let firm = failures.iter().find(|failure| !failure.is_retryable());
        let lasting = failures.iter().filter(|failure| !failure.is_retryable());
        // What does not pass by itself is what to report, if the others alone would be enough.
        let kind = match firm {
            Some(firm) if self.is_too_few(lasting.count()) => Error::from(firm.clone()).kind(),
            _ => ErrorKind::Unavailable,
        };
        let reasons: Vec<_> = failures
            .iter()
            .map(|failure| failure.cause.to_string())
            .chain(others.iter().cloned())
            .collect();
        let (needed, nodes) = (majority(self.len()), self.len());
        let message = format!(
            "fewer than {needed} of {nodes} nodes answer: {}",
            reasons.join("; ")
        );
        let error = Error::new(kind, message);
        if failures.iter().any(|failure| failure.outcome_unknown) {
            error.with_unknown_outcome()
        } else {
            error
        }
    }
}
