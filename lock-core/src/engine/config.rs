//! Ranges of what a configuration sets.

use std::time::Duration;

use crate::error::{Error, Result};

/// The range of most timeouts of one request. For implementors.
pub const TIMEOUT_RANGE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(60));

/// Returns a duration of a configuration if it is in range; `name` is its parameter. For implementors.
///
/// # Errors
///
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if it is out of range.
pub fn duration_in_range(
    name: &str,
    duration: Duration,
    (min, max): (Duration, Duration),
) -> Result<Duration> {
    if (min..=max).contains(&duration) {
        return Ok(duration);
    }
    let [min, max] = [min, max].map(humantime::format_duration);
    let message = format!("{name} must be between {min} and {max}, not {duration:?}");
    Err(Error::config(message))
}
