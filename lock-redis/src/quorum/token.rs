//! The fencing token of an acquisition.
//!
//! Each node counts for itself, so the largest number of one majority can be smaller than that of an
//! earlier majority. A token counts once a majority has it *on record* for the acquisition: the next
//! majority shares a node with this one, and that node draws a larger token. If the nodes grant the
//! number that the client proposes, no second round trip is needed.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use polylock_core::{Error, ErrorKind, FencingToken, Mode, Result};
use redis::Value;

use super::lease::QuorumAcquisition;
use super::node::QuorumNode;
use super::votes::majority;
use crate::error::RedisFailure;
use crate::reply;
use crate::script::{AGREE, BLOCK};

/// The token that a client proposes to all nodes: the time of its clock, in microseconds.
///
/// A node grants it unless its clock differs by more than [`MAX_SKEW`], or it has drawn a larger one.
pub(super) fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// By how many microseconds the clocks of a client and a node may differ, as `vote.lua` has it.
pub(super) const MAX_SKEW: u64 = 100_000;

/// The tokens that nodes have on record for one acquisition. Pure.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    /// The token to agree on.
    pub(super) token: u64,
    /// 0 for a node that has none.
    recorded: Vec<u64>,
}

impl Agreement {
    /// A token that none of so many nodes has on record.
    pub(super) fn new(nodes: usize, token: u64) -> Self {
        let recorded = vec![0; nodes];
        Self { token, recorded }
    }

    /// The node has this token on record, because it has granted it or was asked to record it.
    pub(super) fn recorded(&mut self, node: usize, token: u64) {
        self.recorded[node] = token;
        self.token = self.token.max(token);
    }

    /// The node has drawn this larger token, for another acquisition or as the end of a block.
    pub(super) fn overtaken(&mut self, last: u64) {
        self.token = self.token.max(last + 1);
    }

    /// Whether a majority has the token on record.
    pub(super) fn is_reached(&self) -> bool {
        let nodes = self.recorded.len();
        let recorded = (0..nodes).filter(|node| !self.is_behind(*node));
        recorded.count() >= majority(nodes)
    }

    /// Whether the node has to record the token.
    pub(super) fn is_behind(&self, node: usize) -> bool {
        self.recorded[node] < self.token.max(1)
    }
}

/// The reply of a node to a request to record a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Raised {
    Done,
    NotHeld,
    /// It has drawn this larger one, for another acquisition or as the end of a block.
    Overtaken(u64),
}

impl QuorumAcquisition {
    /// Repeats until a majority has the token on record, with the block after it; `None` if the
    /// acquisition has lost its majority.
    ///
    /// # Cancel safety
    ///
    /// Some nodes may continue to count from a larger number.
    pub(super) async fn agree(&self, mut agreement: Agreement) -> Result<Option<FencingToken>> {
        for _ in 0..MAX_ROUNDS {
            let token = agreement.token;
            if agreement.is_reached() {
                let last = last_of_block(token, self.mode);
                return Ok(Some(self.tokens.begin(token, last)));
            }
            let mut answers = self.quorum.ask_some(
                |node| agreement.is_behind(node),
                |node| async move { node.raise(self, token).await },
            );
            let (mut lost, mut failures) = (0, Vec::new());
            while !agreement.is_reached()
                && let Some((node, raised)) = answers.next().await
            {
                match raised {
                    Ok(Raised::Done) => agreement.recorded(node, token),
                    Ok(Raised::NotHeld) => lost += 1,
                    Ok(Raised::Overtaken(last)) => agreement.overtaken(last),
                    Err(failure) => failures.push(failure),
                }
                if self.quorum.is_too_few(lost) {
                    return Ok(None);
                }
            }
            if !agreement.is_reached() && agreement.token == token {
                return Err(self.quorum.unavailable(&failures, &[]));
            }
        }
        let message = "the nodes do not agree on a fencing token";
        Err(Error::new(ErrorKind::Unavailable, message).with_unknown_outcome())
    }
}

/// Simultaneous readers may overtake each other this often.
const MAX_ROUNDS: usize = 16;

/// The last token that nodes reserve with this one: shared holders never hand over.
fn last_of_block(token: u64, mode: Mode) -> u64 {
    match mode {
        Mode::Exclusive => token + BLOCK - 1,
        _ => token,
    }
}

impl QuorumNode {
    /// Records a token with the block behind it.
    async fn raise(&self, of: &QuorumAcquisition, token: u64) -> Result<Raised, RedisFailure> {
        let last = last_of_block(token, of.mode).to_string();
        let token = token.to_string();
        let retention = self.retention.as_bytes();
        let args = [retention, of.holder.id(), token.as_bytes(), last.as_bytes()];
        let done = self.server.run(&AGREE, &of.keys, &args, None).await?;
        match done.value {
            Value::Int(0) => Ok(Raised::NotHeld),
            Value::Int(1) => Ok(Raised::Done),
            reply => reply::token(&reply).map(Raised::Overtaken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_beyond_the_token_makes_it_larger() {
        let mut agreement = Agreement::new(3, 0);
        agreement.recorded(0, 7);
        agreement.recorded(1, 9);
        agreement.overtaken(5);
        assert_eq!(agreement.token, 9, "nothing was met that is larger");
        agreement.overtaken(12);
        assert_eq!((agreement.token, agreement.is_reached()), (13, false));
        // An answer to the round before.
        agreement.recorded(2, 9);
        assert!((0..3).all(|node| agreement.is_behind(node)));
        agreement.recorded(2, 13);
        agreement.recorded(0, 13);
        assert!(agreement.is_reached());
    }
}
