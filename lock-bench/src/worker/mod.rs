//! Contenders that are processes.

use crate::subject::Failure;
use crate::target::Openers;

/// The hidden argument with which a program is started as a contender.
pub const ARGUMENT: &str = "bench-worker";

/// Is a contender: reads what it has to do from the standard input, does it, and writes what came
/// out to the standard output. Ends with its parent.
///
/// # Errors
///
/// If the parent is not one, or is gone. What goes wrong with locks is told to the parent.
///
/// # Cancel safety
///
/// A lock that it has stays taken for one ttl at most.
pub async fn serve(openers: &Openers) -> Result<(), Failure> {
    let _ = openers;
    Err(Failure::new("invalid", "not a contender"))
}
