//! What happens to locks, recorded and judged.
//!
//! A [`Recorder`] notes events while a test runs, in memory and as JSON lines; a [`Checker`] judges
//! the events of all processes together, and says what was violated by which acquisition.

mod recorded;
mod recorder;
mod witness;

use std::io::BufRead;

use lock_core::Mode;

pub use self::recorded::{Attempt, Recorded};
pub use self::recorder::Recorder;
pub use self::witness::{Counter, FencedRegister, StaleToken};
pub use lock_history::{
    Access, Checker, Event, Exclusion, Hold, Summary, TokenOrder, Verdict, Violation, What,
    check_holds,
};

/// How a lock in this mode is held, for the judge.
pub(crate) fn access(mode: Mode) -> Access {
    match mode {
        Mode::Permit { limit } => Access::Permit(limit),
        Mode::Shared => Access::Shared,
        // A mode that the judge does not know is held to the strictest rule.
        _ => Access::Exclusive,
    }
}

/// Reads a file of JSON lines; a last line without its end, of a process that was killed, is left
/// out.
///
/// # Errors
///
/// Those of reading, and [`InvalidData`](std::io::ErrorKind::InvalidData) for a line that is
/// complete and no event.
pub fn read_history(mut lines: impl BufRead) -> std::io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        if let Some(complete) = line.strip_suffix('\n') {
            events.push(serde_json::from_str(complete)?);
        }
        line.clear();
    }
    Ok(events)
}
