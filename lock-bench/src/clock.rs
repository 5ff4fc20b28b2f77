//! The clock of a run: nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Processor time that this process has used.
pub(crate) fn processor_time() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// What is left until a time that may be over.
pub(crate) fn until(time: u64) -> Duration {
    Duration::from_nanos(time.saturating_sub(now()))
}

/// Sleeps until then, at once if it is over; a timer may be a millisecond late.
pub(crate) async fn sleep_until(time: u64) {
    let left = until(time);
    if !left.is_zero() {
        tokio::time::sleep(left).await;
    }
}

/// A duration as it is recorded.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}
