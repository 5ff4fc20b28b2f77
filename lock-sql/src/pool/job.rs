use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Failure;
use crate::wire::{Answer, Connection, DbError, Sql, Value};

/// A statement, and the receiver of its answer.
pub(super) struct Job {
    pub(super) sql: Arc<Sql>,
    pub(super) values: Vec<Value>,
    pub(super) shape: Shape,
    /// When it is too late for an answer.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Answer, Failure>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    Message,
    Statement,
}

impl Job {
    /// Whether anybody waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    pub(super) async fn run(&self, connection: &mut Connection) -> Result<Answer, DbError> {
        match self.shape {
            Shape::Message => connection.message(&self.sql, &self.values).await,
            Shape::Statement => connection.statement(&self.sql, &self.values).await,
        }
    }

    pub(super) fn answer(self, answer: Result<Answer, Failure>) {
        drop(self.reply.send(answer));
    }
}
