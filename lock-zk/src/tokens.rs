//! The fencing tokens of hand-overs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use zookeeper_client::{Client, Error, Stat};

/// Draws tokens by writes to the own node: the transaction of such a write is later than all that was
/// before it, and earlier than the end of the node, by which the next contender is first.
///
/// A write takes as long as a release. While one holder after the other in this process draws a token,
/// writes for those to come are sent ahead.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<Ahead>);

#[derive(Default)]
struct Ahead {
    writes: VecDeque<Write>,
    /// How many are sent ahead by now.
    depth: usize,
}

type Write = BoxFuture<'static, Result<Stat, Error>>;

impl Tokens {
    /// Sends what is to be sent, and gives the write whose transaction is the next token.
    pub(crate) fn next(&self, client: &Client, path: &str, data: &[u8]) -> Write {
        let write = || -> Write { Box::pin(client.set_data(path, data, None)) };
        let mut ahead = self.ahead();
        let next = ahead.writes.pop_front().unwrap_or_else(write);
        while ahead.writes.len() < ahead.depth {
            ahead.writes.push_back(write());
        }
        ahead.depth = (ahead.depth * 2).clamp(1, DEEPEST);
        next
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enough to hide the time of a write; what is left over when a run of hand-overs ends is in vain.
const DEEPEST: usize = 4;

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("ahead", &self.ahead().writes.len())
            .finish_non_exhaustive()
    }
}
