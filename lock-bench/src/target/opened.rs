use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use super::Runner;
use crate::report::TargetKind;
use crate::subject::Failure;

/// A target to which there is a connection.
#[derive(Clone, Debug)]
pub struct Opened {
    pub(crate) kind: TargetKind,
    pub(crate) runner: Runner,
    pub(crate) is_of_one_process: bool,
}

impl Opened {
    /// What is measured by `runner`.
    #[must_use]
    pub fn new(kind: TargetKind, runner: Runner) -> Self {
        Self {
            kind,
            runner,
            is_of_one_process: false,
        }
    }

    /// Says that other processes do not see its locks.
    #[must_use]
    pub fn within_one_process(mut self) -> Self {
        self.is_of_one_process = true;
        self
    }
}

/// The least commands that exclude, by the same client on the same server.
#[derive(Clone, Debug)]
pub struct Bare {
    pub(crate) commands: String,
    pub(crate) runner: Runner,
    pub(crate) waits: bool,
}

impl Bare {
    /// What sends `commands`, such as `SET NX PX, compare and delete`. It is measured where nobody
    /// waits.
    #[must_use]
    pub fn new(commands: impl Into<String>, runner: Runner) -> Self {
        Self {
            commands: commands.into(),
            runner,
            waits: false,
        }
    }

    /// Says that the server lets it wait without asking again and again, so that it is a limit
    /// under contention too.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }
}

/// Asks a server, on a connection like that of the locks.
#[async_trait]
pub trait Probe: fmt::Debug + Send + Sync {
    /// Makes one round trip with the smallest command that there is.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    ///
    /// # Cancel safety
    ///
    /// The answer is lost, and nothing else.
    async fn ping(&self) -> Result<(), Failure>;

    /// Commands that the server has served since it was started, if it counts them.
    ///
    /// # Errors
    ///
    /// If it does not tell.
    ///
    /// # Cancel safety
    ///
    /// The answer is lost, and nothing else.
    async fn commands(&self) -> Result<Option<u64>, Failure>;

    /// Versions and durability settings, by name and without secrets.
    ///
    /// # Errors
    ///
    /// If it does not tell any of them.
    ///
    /// # Cancel safety
    ///
    /// The answer is lost, and nothing else.
    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure>;
}
