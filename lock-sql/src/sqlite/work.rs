use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::LockKey;
use tokio::sync::oneshot;

use crate::error::{Cause, Failure};
use crate::table::Locks;

/// One operation, of which several share a transaction.
pub(super) trait Work: Send {
    fn reads(&self) -> &Reads;

    /// Whether the records may be changed.
    fn writes(&self) -> bool;

    /// Takes the work up, unless nobody waits for it any more. From here on its outcome is unknown
    /// until it is answered.
    fn begin(&self) -> bool;

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
    /// Those who hold locks whose keys begin with this.
    Prefix(String),
}

/// An operation as the function that it is.
pub(super) struct Task<F, T> {
    pub(super) reads: Reads,
    pub(super) writes: bool,
    act: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, Failure>>,
    begun: Arc<AtomicBool>,
}

impl<F, T> Task<F, T> {
    pub(super) fn new(reads: Reads, writes: bool, act: F) -> (Self, Answer<T>) {
        let (reply, answer) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let answer = Answer {
            answer,
            begun: Arc::clone(&begun),
        };
        (
            Self {
                reads,
                writes,
                act: Some(act),
                result: None,
                reply,
                begun,
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

    fn begin(&self) -> bool {
        // Before the look: whoever gives up either sees the mark or is seen giving up.
        self.begun.store(true, Ordering::SeqCst);
        self.is_wanted()
    }

    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn apply(&mut self, locks: &mut Locks) {
        self.result = self.act.take().map(|act| act(locks));
    }

    fn answer(self: Box<Self>) {
        if let Some(result) = self.result {
            // Nobody there: whoever gave up undoes what it asked for.
            drop(self.reply.send(Ok(result)));
        }
    }

    fn fail(self: Box<Self>, failure: Failure) {
        drop(self.reply.send(Err(failure)));
    }
}

/// What comes of a task.
pub(super) struct Answer<T> {
    answer: oneshot::Receiver<Result<T, Failure>>,
    begun: Arc<AtomicBool>,
}

impl<T> Answer<T> {
    /// Waits for it; whether the task was begun decides what a late one means.
    pub(super) async fn within(mut self, limit: Duration) -> Result<T, Failure> {
        if let Ok(Ok(answer)) = tokio::time::timeout(limit, &mut self.answer).await {
            return answer;
        }
        self.answer.close();
        match self.answer.try_recv() {
            Ok(answer) => answer,
            Err(_) => {
                let outcome_unknown = self.begun.load(Ordering::SeqCst);
                Err(Failure {
                    cause: Cause::Silent(limit),
                    outcome_unknown,
                })
            }
        }
    }
}
