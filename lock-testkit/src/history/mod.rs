//! What happened to locks, written down and judged.
//!
//! A [`Recorder`] notes events while a test runs, in memory and as JSON lines; a [`Checker`] judges
//! the events of all processes together, and says what was violated by which acquisition.

mod check;
mod event;
mod recorded;
mod recorder;
mod span;
mod witness;

pub use self::check::{Checker, Summary, Verdict, Violation};
pub use self::event::{Access, Event, What, read_history};
pub use self::recorded::{Attempt, Recorded};
pub use self::recorder::Recorder;
pub use self::witness::{Counter, FencedRegister, StaleToken};
