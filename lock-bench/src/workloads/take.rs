use std::time::Duration;

use async_trait::async_trait;

use crate::clock;
use crate::subject::{Failure, Subject};

/// A lock that somebody has, of whatever subject.
#[async_trait]
pub(crate) trait Taken: Send {
    /// When it was acquired.
    fn since(&self) -> u64;

    fn token(&self) -> Option<u64>;

    async fn release(self: Box<Self>) -> Result<(), Failure>;
}

/// Takes one lock; `None` if somebody else has it at the end of the wait.
pub(crate) async fn take<S: Subject>(
    subject: S,
    name: String,
    ttl: Duration,
    wait: Duration,
) -> Result<Option<Box<dyn Taken>>, Failure> {
    let key = subject.key(&name)?;
    let held = subject.acquire(&key, ttl, Some(wait)).await?;
    let since = clock::now();
    Ok(held.map(|held| {
        let taken: Box<dyn Taken> = Box::new(Held {
            subject,
            held,
            since,
        });
        taken
    }))
}

struct Held<S: Subject> {
    subject: S,
    held: S::Held,
    since: u64,
}

#[async_trait]
impl<S: Subject> Taken for Held<S> {
    fn since(&self) -> u64 {
        self.since
    }

    fn token(&self) -> Option<u64> {
        S::token(&self.held)
    }

    async fn release(self: Box<Self>) -> Result<(), Failure> {
        self.subject.release(self.held).await
    }
}
