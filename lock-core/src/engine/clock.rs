use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A point in time on one machine, as the time since its boot.
///
/// Unlike [`Instant`], it moves on while the machine is suspended, as the server's clock does.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Moment(u64);

impl Moment {
    /// Later than every time.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment this many nanoseconds after boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Ends at [`Moment::NEVER`].
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

/// Ends at the boot of the machine.
impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the time that the validity of leases is measured by.
///
/// Timers are tokio's, so that a test can pause them; a clock only says how late it is.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time, which never goes back.
    fn now(&self) -> Moment;
}

/// The clock of the machine, which counts the time in which it is suspended: `CLOCK_BOOTTIME` on
/// Linux, `CLOCK_MONOTONIC` on macOS, `QueryPerformanceCounter` on Windows.
///
/// `std::time::Instant` stands still on Linux and macOS while the machine is suspended: a lease
/// measured by it would outlast the lease on the server. On Windows it begins with the process: moments
/// of two processes cannot be compared there.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock(());

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        since_boot(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
    }

    // It "will continue to increment while the system is asleep", says clock_gettime(3) of macOS.
    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    fn now(&self) -> Moment {
        since_boot(rustix::time::clock_gettime(
            rustix::time::ClockId::Monotonic,
        ))
    }

    // On Windows `Instant` is QueryPerformanceCounter, which counts "the time when the machine was in a
    // sleep state such as standby, hibernate, or connected standby":
    // learn.microsoft.com/windows/win32/sysinfo/acquiring-high-resolution-time-stamps.
    #[cfg(not(unix))]
    fn now(&self) -> Moment {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Moment(1 << 40) + START.get_or_init(std::time::Instant::now).elapsed()
    }
}

#[cfg(unix)]
fn since_boot(time: rustix::time::Timespec) -> Moment {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// A clock for tests: follows tokio's time, which can be paused, and can be bent.
///
/// It must be read inside the runtime whose time it follows.
#[derive(Debug)]
pub struct VirtualClock {
    origin: Instant,
    suspended: AtomicU64,
    parts_per_million: i64,
}

impl VirtualClock {
    /// Starts at an hour after boot and runs at the speed of tokio's time.
    #[must_use]
    pub fn new() -> Self {
        Self::with_drift(0)
    }

    /// Runs faster by this many parts per million than tokio's time, or slower if negative.
    #[must_use]
    pub fn with_drift(parts_per_million: i32) -> Self {
        Self {
            origin: Instant::now(),
            suspended: AtomicU64::new(3_600_000_000_000),
            parts_per_million: i64::from(parts_per_million),
        }
    }

    /// Moves the clock without moving timers, as a suspended machine does.
    pub fn suspend(&self, duration: Duration) {
        self.suspended.fetch_add(nanos(duration), Ordering::SeqCst);
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Moment {
        let elapsed = i128::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i128::MAX);
        let drifted = elapsed + elapsed * i128::from(self.parts_per_million) / 1_000_000;
        let drifted = u64::try_from(drifted).unwrap_or(0);
        Moment(self.suspended.load(Ordering::SeqCst)) + Duration::from_nanos(drifted)
    }
}
