use std::collections::HashSet;
use std::time::Duration;

use super::super::token::{MAX_SKEW, Raised};
use super::super::votes::Vote;
use crate::script::BLOCK;

/// What `vote.lua`, `agree.lua`, `renew.lua` and `withdraw.lua` do.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The lead of its clock, below which it draws no token. Without one, only the counters keep the
    /// order.
    pub(super) clock: Option<u64>,
    pub(super) last: u64,
    owner: u64,
    holders: Vec<(u64, u64)>,
    gone: HashSet<u64>,
    votes_from: u64,
}

impl Node {
    pub(super) fn new(clock: Option<u64>) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    /// Votes with the proposed token if there is one and the clock is near it.
    pub(super) fn vote(
        &mut self,
        id: u64,
        shared: bool,
        proposal: Option<u64>,
        now: u64,
        until: u64,
    ) -> Vote {
        self.expire(now);
        if now < self.votes_from {
            let (left, last) = (Duration::ZERO, self.last);
            return Vote::Rejoining { left, last };
        }
        if self.gone.contains(&id) || self.owner == id {
            return Vote::Held {
                left: None,
                last: 0,
            };
        }
        if !shared && !self.holders.is_empty() {
            let (left, last) = (None, self.last);
            return Vote::Held { left, last };
        }
        self.holders.push((id, until));
        let clock = self.clock.map_or(0, |ahead| now * 1_000 + ahead);
        let proposal = proposal.filter(|time| time.abs_diff(clock) <= MAX_SKEW);
        let token = proposal.unwrap_or(clock).max(self.last + 1);
        (self.last, self.owner) = (end(shared, token), id);
        Vote::Granted(token)
    }

    pub(super) fn raise(&mut self, id: u64, token: u64, shared: bool, now: u64) -> Raised {
        self.expire(now);
        let top = end(shared, token);
        if !self.holders.iter().any(|(holder, _)| *holder == id) {
            Raised::NotHeld
        } else if self.last > top || self.last == top && self.owner != id {
            Raised::Overtaken(self.last)
        } else {
            (self.last, self.owner) = (top, id);
            Raised::Done
        }
    }

    pub(super) fn extend(&mut self, id: u64, now: u64, until: u64) -> bool {
        self.expire(now);
        let held = self.holders.iter_mut().find(|(holder, _)| *holder == id);
        held.map(|lease| lease.1 = until).is_some()
    }

    pub(super) fn release(&mut self, id: u64) {
        self.gone.insert(id);
        self.holders.retain(|(holder, _)| *holder != id);
    }

    /// Its state without its data.
    pub(super) fn forgotten(&self) -> Self {
        Self::new(self.clock)
    }

    /// Starts again with what it had in a snapshot, and votes later.
    pub(super) fn restart(&mut self, snapshot: Self, votes_from: u64) {
        *self = Self {
            votes_from,
            ..snapshot
        };
    }

    fn expire(&mut self, now: u64) {
        self.holders.retain(|(_, until)| *until > now);
    }
}

pub(super) fn end(shared: bool, token: u64) -> u64 {
    if shared { token } else { token + BLOCK - 1 }
}
