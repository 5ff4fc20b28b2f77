use lock_core::LockKey;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Failure;
use crate::table::Locks;

/// One operation, of which several share a transaction.
pub(super) trait Work: Send {
    fn reads(&self) -> &Reads;

    /// Whether the records may be changed.
    fn writes(&self) -> bool;

    /// When it is too late for an answer.
    fn deadline(&self) -> Instant;

    /// Whether anybody waits for it.
    fn is_wanted(&self) -> bool;

    /// Changes the records, and keeps what came of it.
    fn apply(&mut self, locks: &mut Locks);

    /// Tells what came of it, once that is stored.
    fn answer(self: Box<Self>);

    fn fail(self: Box<Self>, failure: Failure);
}

/// What goes into one transaction.
pub(super) type Batch = Vec<Box<dyn Work>>;

/// What an operation has to see.
#[derive(Debug)]
pub(super) enum Reads {
    /// All about these locks.
    Keys(Vec<LockKey>),
    /// The holders of locks whose keys begin with this.
    Prefix(String),
}

/// The result of an operation. A caller that drops it has given up, and undoes its request.
pub(super) type Answer<T> = oneshot::Receiver<Result<T, Failure>>;

/// An operation as the function that it is.
pub(super) struct Task<F, T> {
    reads: Reads,
    writes: bool,
    deadline: Instant,
    act: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, Failure>>,
}

impl<F, T> Task<F, T> {
    pub(super) fn new(reads: Reads, writes: bool, deadline: Instant, act: F) -> (Self, Answer<T>) {
        let (reply, answer) = oneshot::channel();
        (
            Self {
                reads,
                writes,
                deadline,
                act: Some(act),
                result: None,
                reply,
            },
            answer,
        )
    }
}

impl<F, T> Work for Task<F, T>
where
    F: FnOnce(&mut Locks) -> T + Send,
    T: Send,
{
    fn reads(&self) -> &Reads {
        &self.reads
    }

    fn writes(&self) -> bool {
        self.writes
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn apply(&mut self, locks: &mut Locks) {
        self.result = self.act.take().map(|act| act(locks));
    }

    fn answer(self: Box<Self>) {
        if let Some(result) = self.result {
            drop(self.reply.send(Ok(result)));
        }
    }

    fn fail(self: Box<Self>, failure: Failure) {
        drop(self.reply.send(Err(failure)));
    }
}
