//! Locks on several independent masters: what every backend promises, and what nodes do to them.

mod config;
mod cost;
mod handover;
mod health;
mod nodes;
mod notifications;
mod outages;
mod partition;
mod records;
mod rejoin;
mod renewals;
mod support;

mod conformance_suite {
    lock_testkit::conformance!(
        harness = super::nodes::Nodes::behind_proxies(3),
        skip = [Adoption, Fair, Permits]
    );
}
