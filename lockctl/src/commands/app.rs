//! What all commands share: the options of every command, the console, and how to reach the backend.

use std::sync::Arc;
use std::time::Duration;

use polylock::admin::LockAdmin;
use polylock::{DistributedLock, LockKey};
use serde_json::Value;

use crate::args::{GlobalArgs, OutputFormat};
use crate::backend::{BackendUrl, is_url};
use crate::exit::Exit;
use crate::output::{CommandFailure, Console, json_line, print};

#[derive(Debug)]
pub(super) struct App {
    pub(super) global: GlobalArgs,
    pub(super) console: Console,
}

impl App {
    pub(super) fn backend(&self) -> Result<BackendUrl, CommandFailure> {
        BackendUrl::choose(&self.global, |name: &str| std::env::var_os(name))
    }

    /// Connects for a question about locks of others, which one backend answers.
    pub(super) async fn connect(&self) -> Result<Arc<dyn DistributedLock>, CommandFailure> {
        let backend = self.backend()?;
        backend.check_is_one()?;
        backend.connect(None, &self.console).await
    }

    pub(super) fn wants_json(&self) -> bool {
        self.global.format == OutputFormat::Json
    }

    /// Prints an answer in the form that is asked for.
    pub(super) fn answer(
        &self,
        json: &Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandFailure> {
        print(&self.line(json, text))
    }

    /// An answer in the form that is asked for: one line of JSON, or a text, which brings its line
    /// breaks.
    pub(super) fn line(&self, json: &Value, text: impl FnOnce() -> String) -> String {
        match self.wants_json() {
            true => json_line(json),
            false => text(),
        }
    }
}

/// The administration of the backend, which not every backend has.
pub(super) fn admin(locks: &dyn DistributedLock) -> Result<&dyn LockAdmin, CommandFailure> {
    locks.admin().ok_or_else(|| {
        let backend = locks.capabilities().backend;
        CommandFailure::new(
            Exit::Config,
            format!("{backend} does not tell about locks of others"),
        )
    })
}

/// Checks a key before anything is connected to.
pub(super) fn key(name: &str) -> Result<LockKey, CommandFailure> {
    refuse_url(name)?;
    Ok(LockKey::new(name)?)
}

/// Refuses the URL of a lock service in place of a key or a pattern: what is asked then is another service, and
/// answers repeat keys with their passwords.
pub(super) fn refuse_url(name: &str) -> Result<(), CommandFailure> {
    if !is_url(name) {
        return Ok(());
    }
    let message = "the URL of a lock service stands where a key is expected";
    Err(CommandFailure::new(Exit::Usage, message).with_hint("give it by --backend URL"))
}

/// Time for background releases before the process ends.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(2);
