use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lock_core::Mode;
use lock_core::engine::{LeaseId, Moment};

use crate::mutants::Mutation;
use crate::sim::message::Claim;

/// How this store differs from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) token_block: u64,
    pub(crate) remembers_released: bool,
    pub(crate) waiter_life: Duration,
    pub(crate) mutation: Option<Mutation>,
}

/// The state of one key.
#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) holders: Vec<Holder>,
    pub(super) queue: VecDeque<Waiter>,
    pub(super) last_token: u64,
    /// Ids that were released and when to forget them.
    pub(super) released: BTreeMap<LeaseId, Moment>,
    /// Waiters that a broken store has forgotten to wake.
    pub(super) lost: BTreeSet<LeaseId>,
}

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) claim: Claim,
    pub(super) token: u64,
    pub(super) block_end: u64,
    pub(super) expires: Moment,
    pub(super) tenure: usize,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) claim: Claim,
    pub(super) seen: Moment,
}

impl Lock {
    /// Reserves a block of tokens above every earlier one, and never below the clock.
    pub(super) fn issue(&mut self, now: Moment, rules: Rules) -> (u64, u64) {
        let clock = now.as_nanos() / 1000;
        let token = match rules.mutation {
            Some(Mutation::TokenReused) if self.last_token > 0 => self.last_token,
            _ => (self.last_token + 1).max(clock),
        };
        self.last_token = token + rules.token_block - 1;
        (token, self.last_token)
    }

    pub(super) fn admits(&self, mode: Mode, rules: Rules) -> bool {
        let Some(first) = self.holders.first() else {
            return true;
        };
        match (first.claim.mode, mode) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Shared, _) => rules.mutation == Some(Mutation::SharedAdmitsWriter),
            (Mode::Permit { limit }, Mode::Permit { .. }) => {
                let more = u32::from(rules.mutation == Some(Mutation::PermitBeyondLimit));
                let limit = usize::try_from(limit.get() + more).unwrap_or(usize::MAX);
                self.holders.len() < limit
            }
            _ => false,
        }
    }

    pub(super) fn free_in(&self, now: Moment) -> Option<Duration> {
        self.holders
            .iter()
            .map(|holder| holder.expires.since(now))
            .min()
    }
}
