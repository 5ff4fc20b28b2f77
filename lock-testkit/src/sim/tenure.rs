//! The truth about who had which lock on the store, for the judge.

use lock_core::LockKey;
use lock_core::engine::{LeaseId, Moment};

use super::message::Claim;

/// One lease on the store from its grant to its end, by the clock of the store.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) key: LockKey,
    pub(crate) id: LeaseId,
    pub(crate) tokens: (u64, u64),
    pub(crate) from: Moment,
    pub(crate) expires: Moment,
    /// When it was released or taken away before it ran out.
    pub(crate) ended: Option<Moment>,
}

impl Tenure {
    pub(crate) fn until(&self) -> Moment {
        self.ended
            .map_or(self.expires, |ended| ended.min(self.expires))
    }
}

#[derive(Debug, Default)]
pub(super) struct Tenures(Vec<Tenure>);

impl Tenures {
    pub(super) fn begin(
        &mut self,
        claim: &Claim,
        tokens: (u64, u64),
        from: Moment,
        expires: Moment,
    ) -> usize {
        let (key, id) = (claim.key.clone(), claim.id);
        self.0.push(Tenure {
            key,
            id,
            tokens,
            from,
            expires,
            ended: None,
        });
        self.0.len() - 1
    }

    pub(super) fn extend(&mut self, tenure: usize, expires: Moment) {
        self.0[tenure].expires = expires;
    }

    pub(super) fn end(&mut self, tenure: usize, at: Moment) {
        self.0[tenure].ended = Some(at);
    }

    /// The lease that a token belongs to, handed-over tokens included; the last one, if a broken
    /// store issued a token twice.
    pub(super) fn of_token(&self, key: &LockKey, token: u64) -> Option<&Tenure> {
        let of = |tenure: &&Tenure| {
            tenure.key == *key && (tenure.tokens.0..=tenure.tokens.1).contains(&token)
        };
        self.0.iter().rev().find(of)
    }

    pub(super) fn all(&self) -> &[Tenure] {
        &self.0
    }
}
