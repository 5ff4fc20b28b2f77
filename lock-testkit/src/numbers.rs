//! Numbers that one process at a time may use, such as ports.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Range;
use std::process;

/// Reserves a free number. The reservation is a lock on a file named after it in `directory`, under the
/// temporary directory. It ends with the returned file or this process.
pub(crate) fn reserve(
    directory: &str,
    numbers: Range<u16>,
    is_free: impl Fn(u16) -> io::Result<bool>,
) -> io::Result<(u16, File)> {
    let path = std::env::temp_dir().join(directory);
    fs::create_dir_all(&path)?;
    let count = numbers.end - numbers.start;
    // Each process begins at a place of its own, so that the processes of a test run seldom meet.
    let start = process::id().wrapping_mul(2_654_435_761) >> 16;
    let start = u16::try_from(start % u32::from(count)).unwrap_or_default();
    for step in (start..count).chain(0..start) {
        let number = numbers.start + step;
        let file = File::create(path.join(number.to_string()))?;
        match file.try_lock() {
            Ok(()) if is_free(number)? => return Ok((number, file)),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other(format!("nothing of {directory} is free")))
}
