//! What happens to locks, recorded and judged.
//!
//! A [`Recorder`] notes events while a test runs, in memory and as JSON lines; a [`Checker`] judges
//! the events of all processes together, and says what was violated by which acquisition.

mod recorded;
mod recorder;
mod witness;

use polylock_core::Mode;

pub use self::recorded::{Attempt, Recorded};
pub use self::recorder::Recorder;
pub use self::witness::{Counter, FencedRegister};
pub use polylock_history::{
    Access, Checker, Exclusion, HistoryEvent, Hold, Summary, TokenOrder, Verdict, Violation, What,
    check_holds,
};

/// How a lock in this mode is held, for the judge.
#[must_use]
pub fn access_of(mode: Mode) -> Access {
    match mode {
        Mode::Permit { limit } => Access::Permit(limit),
        Mode::Shared => Access::Shared,
        // A mode that the judge does not know is held to the strictest rule.
        _ => Access::Exclusive,
    }
}
