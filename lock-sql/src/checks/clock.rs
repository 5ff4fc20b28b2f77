use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylock_core::{RuleOutcome, Status};

use crate::config::SqlMode;

pub(super) const IMPACT: &str =
    "a clock that is set by a jump ends leases early, or makes them stay";
pub(super) const FIX: &str = "run a time service that slews clocks on both machines";

/// Whether the clocks of the server and of this machine agree.
pub(super) fn clock(offset: Option<Duration>, mode: SqlMode) -> RuleOutcome {
    match offset {
        _ if mode != SqlMode::Lease => Status::Ok.because("no lock of this mode ends by a clock"),
        None => Status::NotChecked.because("the server does not tell its time"),
        Some(offset) if offset > MAX_OFFSET => Status::Warning.because(format!(
            "the clock of the server differs by {} s",
            offset.as_secs()
        )),
        Some(_) => Status::Ok.because("the clock of the server is set like this one"),
    }
}

/// Min difference between the clocks of a server and of this machine.
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
