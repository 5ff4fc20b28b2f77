//! What the start does not look at: what locks set aside, or need later.

use std::time::Duration;

use lock_core::Finding;

use super::facts::Facts;
use crate::config::{SqlConfig, SqlMode};

/// Sessions of locks say themselves after which silence they end; connections for leases do not.
pub(super) fn idle_timeout(facts: &Facts, config: &SqlConfig) -> Finding {
    let Some(limit) = facts.seconds("wait_timeout") else {
        return Finding::unknown("idle-timeout", "the server does not tell wait_timeout");
    };
    let what = format!("wait_timeout is {limit:?}");
    match config.mode {
        SqlMode::Lease if limit < RENEWAL => Finding::warning(
            "idle-timeout",
            what,
            "the server ends connections between one renewal of a lease and the next, which then has \
             to open one in its time",
            "set it to a minute or more, or use a shorter ttl",
        ),
        SqlMode::Lease => Finding::good("idle-timeout", what),
        SqlMode::Advisory | SqlMode::Row => {
            let own = config.session_timeout;
            let what = format!("{what}, and sessions of locks set it to {own:?}");
            Finding::good("idle-timeout", what)
        }
    }
}

/// Pause between the renewals of a lease of 30 s, the default.
const RENEWAL: Duration = Duration::from_secs(10);

/// Connections set it to the time of a statement, and waiters to that of their wait, but not where
/// the connections are others' as well.
pub(super) fn lock_wait(facts: &Facts, config: &SqlConfig, is_pooled: bool) -> Finding {
    let Some(limit) = facts.seconds("innodb_lock_wait_timeout") else {
        let what = "the server does not tell innodb_lock_wait_timeout";
        return Finding::unknown("lock-wait", what);
    };
    let what = format!("innodb_lock_wait_timeout is {limit:?}");
    if !is_pooled {
        let what = format!("{what}, and connections of locks set their own");
        return Finding::good("lock-wait", what);
    }
    match limit < config.timeout {
        true => Finding::warning(
            "lock-wait",
            what,
            "statements fail that would be done in the time that the configuration gives them",
            "set it to more, write a shorter timeout, or connect to the server itself",
        ),
        false => Finding::good("lock-wait", what),
    }
}

/// The engine of the table, or whether there is one to make it with.
pub(super) fn engine(engine: Option<&str>, has_innodb: Option<bool>, mode: SqlMode) -> Finding {
    match (engine, has_innodb) {
        (Some(engine), _) if engine.eq_ignore_ascii_case("InnoDB") => {
            Finding::good("engine", "the engine of the table is InnoDB")
        }
        (Some(engine), _) => {
            let what = format!("the engine of the table is {engine}");
            let way_out = "ALTER TABLE .. ENGINE = InnoDB";
            match mode {
                SqlMode::Row => {
                    let why = "it has no locks of rows: a lock is everybody's";
                    Finding::error("engine", what, why, way_out)
                }
                SqlMode::Advisory | SqlMode::Lease => {
                    let why =
                        "a crash of the server can damage it, or take back what was committed";
                    Finding::warning("engine", what, why, way_out)
                }
            }
        }
        (None, Some(true)) => {
            Finding::good("engine", "the server has InnoDB to make the table with")
        }
        (None, Some(false)) => Finding::error(
            "engine",
            "the server has no InnoDB",
            "no table of locks can be made",
            "start the server with InnoDB",
        ),
        (None, None) => Finding::unknown("engine", "the server does not tell this user"),
    }
}
