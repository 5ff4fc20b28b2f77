//! What one server is like, beyond the checks of every start.

use lock_core::Finding;

use super::facts::Facts;
use super::server::{CONFIG, INFO, untold};

/// What each check shows.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![memory(facts), client_timeout(facts)]
}

fn memory(facts: &Facts) -> Finding {
    let (used, limit) = match (facts.used_memory, facts.maxmemory) {
        (_, Some(0)) => return Finding::good("memory", "there is no maxmemory"),
        (Some(used), Some(limit)) => (used, limit),
        _ => return untold("memory", INFO),
    };
    let percent = u128::from(used) * 100 / u128::from(limit);
    let what = format!("the server uses {percent} % of its maxmemory");
    // A server that evicts is full in normal use; what that costs is another check.
    let is_kept = facts.policy.as_deref() == Some("noeviction");
    if is_kept && percent >= NEARLY_ALL {
        return Finding::warning(
            "memory",
            what,
            "with nothing left it grants no locks",
            "raise maxmemory or remove data",
        );
    }
    Finding::good("memory", what)
}

const NEARLY_ALL: u128 = 90;

fn client_timeout(facts: &Facts) -> Finding {
    match facts.idle_limit {
        None => untold("client-timeout", CONFIG),
        Some(0) => Finding::good("client-timeout", "idle connections are kept"),
        Some(seconds @ 1..=BETWEEN_RENEWALS) => Finding::warning(
            "client-timeout",
            format!("timeout is {seconds} s"),
            "the server closes connections between two renewals, and each has to make another first",
            "set timeout to 0, or to more than a third of the longest ttl",
        ),
        Some(seconds) => Finding::good("client-timeout", format!("timeout is {seconds} s")),
    }
}

/// Between two renewals of a lease of 30 s, in seconds.
const BETWEEN_RENEWALS: u64 = 10;
