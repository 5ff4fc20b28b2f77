//! The command that runs under the locks: its start, environment and end.

mod environment;
mod linger;
mod locks;
mod processes;
mod rules;
mod runner;
mod signals;
mod spawn;
mod supervise;

use self::environment::LockVariables;
use self::processes::reap_orphans;
use self::spawn::spawn;
use self::supervise::CommandWatch;

pub(crate) use self::linger::Linger;
pub(crate) use self::locks::{CommandLocks, ReleasedLocks};
pub(crate) use self::processes::parent_of;
pub(crate) use self::rules::{CommandRules, LostAction, Pgid, wants_own_group};
pub(crate) use self::runner::{ENDED_BEFORE, Runner};
pub(crate) use self::signals::{NAMES, Signals, end_of_process_1, name};
pub(crate) use self::spawn::Exec;
pub(crate) use self::supervise::{Ending, Stop};
