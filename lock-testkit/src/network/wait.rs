//! Polls until a condition holds.

use std::io;
use std::time::{Duration, Instant};

/// Waits for what comes soon.
pub(super) fn wait(what: &str, mut met: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !met()? {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, what.to_owned()));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

const PAUSE: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(10);
