use std::sync::Arc;

use futures_util::StreamExt;
use lock_core::{Error, ErrorKind, Mode, Result};

use super::agreement::Agreement;
use super::ensemble::Ensemble;
use super::node::Raised;
use super::vote::{Verdict, Votes};
use crate::keys::Keys;
use crate::server::Holder;
use crate::tokens::count_of;

/// Goes on until a majority has the token on record for this acquisition, with the block behind it;
/// `None` if the acquisition has lost its majority.
///
/// # Cancel safety
///
/// Some nodes may count on from a larger number.
pub(super) async fn settle(
    ensemble: &Ensemble,
    keys: &Arc<Keys>,
    holder: &Holder,
    mode: Mode,
    mut agreement: Agreement,
) -> Result<Option<u64>> {
    for _ in 0..MOST_CLIMBS {
        if agreement.is_reached() {
            return Ok(Some(agreement.token()));
        }
        let token = agreement.token();
        let last = token + count_of(mode) - 1;
        let mut asking = ensemble.ask(
            |node| agreement.is_behind(node),
            |node| {
                let (keys, holder) = (Arc::clone(keys), holder.clone());
                async move { node.raise(&keys, &holder, token, last).await }
            },
        );
        let mut votes = Votes::new(ensemble.len());
        votes.yes = ensemble.len() - asking.len();
        let mut failures = Vec::new();
        while let Some((node, raised)) = asking.next().await {
            match raised {
                Raised::Done => {
                    votes.yes += 1;
                    agreement.raised(node);
                }
                Raised::Failed(failure) => {
                    votes.silent += 1;
                    failures.push(failure);
                }
                Raised::NotHeld => votes.no += 1,
                // It still has the lock, and takes a larger token.
                Raised::Overtaken(last) => agreement.overtaken(last),
            }
            if agreement.is_reached() {
                return Ok(Some(token));
            }
            if votes.verdict() == Verdict::No {
                return Ok(None);
            }
        }
        if !agreement.climb() {
            return Err(ensemble.silence(&failures, &[]));
        }
    }
    let message = "the nodes do not agree on a fencing token";
    Err(Error::new(ErrorKind::Unavailable, message).with_unknown_outcome())
}

/// Readers that come at the same moment may be in each other's way so often.
const MOST_CLIMBS: usize = 16;
