//! Contenders that are processes.

mod parent;
mod process;
mod protocol;
mod serve;

pub(crate) use self::process::{PROCESSES, Process};
pub(crate) use self::protocol::{Part, Work};
pub use self::serve::serve;

/// The hidden argument with which a program is started as a contender.
pub const ARGUMENT: &str = "bench-worker";
