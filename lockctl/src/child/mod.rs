//! The command that runs under the locks: its start, environment and end.

mod environment;
mod family;
mod linger;
mod signals;
mod spawn;
mod stop;
mod supervise;

use std::time::Duration;

use polylock::MultiGuard;
use tokio::time::Instant;

pub(crate) use self::environment::Facts;
pub(crate) use self::family::adopt_orphans;
pub(crate) use self::linger::Linger;
pub(crate) use self::signals::{Signals, Suspensions, name};
pub(crate) use self::spawn::{Successor, spawn, wants_own_group};
pub(crate) use self::stop::Stop;
pub(crate) use self::supervise::{Ending, Rules, Watch};

/// Time until the first of the locks ends unless it is renewed; `None` without limit.
pub(crate) fn valid_for(guard: &MultiGuard) -> Option<Duration> {
    let now = Instant::now();
    let ends = guard
        .guards()
        .iter()
        .filter_map(|guard| guard.valid_until());
    ends.min().map(|end| end.saturating_duration_since(now))
}
