use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::HealthCheck;

use crate::config::{SqlConfig, SqlMode};

/// Says whether the clocks of the server and of this machine are set by the same time.
///
/// Sessions go by no clock.
pub(super) fn clock(offset: Option<Duration>, is_trusted: bool) -> HealthCheck {
    let Some(offset) = offset else {
        return HealthCheck::not_checked("clock", "the server does not tell its time");
    };
    let what = format!("the clock of the server differs by {} s", offset.as_secs());
    match offset > MAX_OFFSET {
        true if is_trusted => HealthCheck::warning(
            "clock",
            what,
            "a clock that is set by a jump ends leases early, or makes them stay",
            "run a time service that slews clocks on both machines",
        ),
        true => HealthCheck::ok("clock", format!("{what}, and no lock goes by it")),
        false => HealthCheck::ok("clock", "the clock of the server is set like this one"),
    }
}

/// Whether locks end by the clock of the server.
pub(super) fn is_trusted(config: &SqlConfig) -> bool {
    config.mode == SqlMode::Lease
}

/// By how much the clock of a server differs from that of this machine, at least.
pub(super) fn offset(asked: SystemTime, server: i64) -> Option<Duration> {
    let micros = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok()
    };
    // It has read its clock between these two.
    let (sent, received) = (micros(asked)?, micros(SystemTime::now())?);
    let early = sent.saturating_sub(server);
    let late = server.saturating_sub(received);
    let offset = early.max(late).max(0);
    Some(Duration::from_micros(offset.unsigned_abs()))
}

/// A clock that differs by more is not set by a time service.
const MAX_OFFSET: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leases_go_by_the_clock_of_the_server() {
        let far = Some(Duration::from_secs(3));
        let found = clock(far, true);
        assert!(found.is_fault() && found.summary.contains("differs by 3 s"));
        for (offset, is_trusted) in [(far, false), (Some(Duration::from_secs(1)), true)] {
            assert!(!clock(offset, is_trusted).is_fault());
        }
        assert!(!clock(None, true).is_fault());
    }
}
