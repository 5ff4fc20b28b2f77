//! What is measured: names, URLs, and what opens them.

mod opened;
mod openers;
mod polylocks;
mod runner;

pub use self::opened::{Bare, Opened, Probe};
pub use self::openers::{Opener, Openers, Target};
pub use self::runner::{Runner, runner};
