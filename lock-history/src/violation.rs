use std::fmt;

use crate::{Exclusion, Hold, TokenOrder};

/// Something that must not happen. Numbers of acquisitions are those of the events.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Violation {
    /// A release took the lock from a holder that was granted it after the releaser.
    ForeignRelease {
        /// The acquisition that released.
        by: u64,
    },
    /// A lock was held again after it was lost or its lease had expired.
    HeldAfterLoss {
        /// The holder.
        holder: u64,
    },
    /// Something was left in the store.
    LeftBehind {
        /// Holders.
        holders: u64,
        /// Entries in the queue.
        waiters: u64,
    },
    /// The loss was signaled after the lease had expired.
    LateSignal {
        /// The holder that lost the lock.
        holder: u64,
        /// By how many nanoseconds.
        by: u64,
    },
    /// A lock was gone before its time, and was not broken.
    LostWithoutCause {
        /// The holder that lost the lock.
        holder: u64,
    },
    /// Two holders that exclude each other held the lock at the same time, or one more than the limit.
    Overlap {
        /// The earlier holder.
        first: u64,
        /// The holder that was granted it meanwhile.
        second: u64,
    },
    /// The register took a write with a smaller token than it had seen.
    RegisterWentBack {
        /// The token of the write.
        token: u64,
        /// The largest token before it.
        largest: u64,
    },
    /// The register refused a write whose token was not smaller than any before.
    RefusedFreshToken {
        /// The token of the write.
        token: u64,
    },
    /// A waiter waited for a free lock.
    Starved {
        /// The waiter.
        waiter: u64,
    },
    /// Two holders that exclude each other had the same token.
    TokenReused {
        /// The holder that was granted it later.
        later: u64,
        /// The token.
        token: u64,
    },
    /// A holder had a smaller token than one before it.
    TokenWentBack {
        /// The holder that was granted it later.
        later: u64,
        /// Its token.
        token: u64,
        /// The largest token before it.
        largest: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ForeignRelease { by } => {
                format!("{by} released a lock that another holder had been granted since")
            }
            Self::HeldAfterLoss { holder } => format!("{holder} held the lock after its loss"),
            Self::LeftBehind { holders, waiters } => {
                format!("{holders} holders and {waiters} waiters were left in the store")
            }
            Self::LateSignal { holder, by } => {
                format!("the loss of {holder} was signaled {} us late", by / 1_000)
            }
            Self::LostWithoutCause { holder } => {
                format!("{holder} lost the lock before its time without a cause")
            }
            Self::Overlap { first, second } => {
                format!("{second} was granted the lock while {first} held it")
            }
            Self::RegisterWentBack { token, largest } => {
                format!("the register took token {token} after {largest}")
            }
            Self::RefusedFreshToken { token } => {
                format!("the register refused token {token}, which was fresh")
            }
            Self::Starved { waiter } => format!("{waiter} waited while the lock was free"),
            Self::TokenReused { later, token } => {
                format!("{later} got token {token}, which an earlier holder had")
            }
            Self::TokenWentBack {
                later,
                token,
                largest,
            } => format!("{later} got token {token} after an earlier holder had {largest}"),
        };
        f.write_str(&text)
    }
}

/// Judges all holds of one key, in the order of [`from`](Hold::from): exclusion and tokens.
///
/// A hold of no length may be a grant that was noted after its lease had ended, later than grants that
/// followed it. Its token is compared only with those of holders that were granted the lock before it was
/// [`requested`](Hold::requested).
pub fn check_holds(holds: impl IntoIterator<Item = Hold>) -> Vec<Violation> {
    let (mut exclusion, mut order) = (Exclusion::new(), TokenOrder::new());
    let (mut overlaps, mut disorder) = (Vec::new(), Vec::new());
    // Each hold with a larger token than those before it, by when it began.
    let mut largest: Vec<Hold> = Vec::new();
    for hold in holds {
        if let Some(first) = exclusion.enter(hold) {
            overlaps.push(Violation::Overlap {
                first: first.holder,
                second: hold.holder,
            });
        }
        let mut before = order.grant(hold);
        if hold.until <= hold.from {
            let count = largest.partition_point(|other| other.from < hold.requested);
            before = largest[..count].last().copied();
            before = before.filter(|before| before.token >= hold.token);
        }
        if hold.token > largest.last().and_then(|last| last.token) {
            largest.push(hold);
        }
        let before = before.and_then(|before| before.token);
        if let (Some(largest), Some(token)) = (before, hold.token) {
            let later = hold.holder;
            disorder.push(if token == largest {
                Violation::TokenReused { later, token }
            } else {
                Violation::TokenWentBack {
                    later,
                    token,
                    largest,
                }
            });
        }
    }
    overlaps.append(&mut disorder);
    overlaps
}
