use std::env;
use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::process::Account;

/// A data directory or a file that takes seconds to make, and that every server uses.
///
/// It is made by the first that needs it and stays in a directory of this user's in the temporary
/// directory, for later test runs too.
#[derive(Debug)]
pub(super) struct Template<'a> {
    /// What kind of server.
    pub(super) server: &'static str,
    /// Another version of it makes another template.
    pub(super) program: &'a Path,
    /// What is done to make it, in words that change when that does.
    pub(super) recipe: &'a str,
    pub(super) account: &'a Account,
}

impl Template<'_> {
    /// Copies it to this place, made by `make` in an empty directory of the account's if need be.
    pub(super) fn copy(
        &self,
        to: &Path,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        copy_all(&self.place(make)?, to)
    }

    /// Where it is, made as for a copy if need be.
    pub(super) fn place(&self, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
        let dir = own_dir()?;
        let place = dir.join(self.name()?);
        if !place.exists() {
            // Held until the end of this process, if need be, and no longer.
            let lock = File::create(place.with_extension("lock"))?;
            lock.lock()?;
            if !place.exists() {
                let draft = scratch(self.account)?;
                make(draft.path())?;
                // The rename is atomic, and the draft can be on another disk.
                let copied = place.with_extension("draft");
                if_there(fs::remove_dir_all(&copied))?;
                copy_all(&draft.path().join(DATA), &copied)?;
                fs::rename(copied, &place)?;
            }
        }
        Ok(place)
    }

    fn name(&self) -> io::Result<String> {
        let program = fs::metadata(self.program)?;
        let mut hasher = DefaultHasher::new();
        (self.program, program.len(), program.mtime()).hash(&mut hasher);
        (self.recipe, self.account.user()).hash(&mut hasher);
        Ok(format!("{}-{:016x}", self.server, hasher.finish()))
    }
}

/// A temporary directory that the account owns.
pub(super) fn scratch(account: &Account) -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("polylock-").tempdir()?;
    account.give(dir.path())?;
    Ok(dir)
}

/// The removal of what may not be there.
pub(super) fn if_there(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Copies a directory with its owners and modes.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    run(Command::new("cp")
        .args(["-a", "--reflink=auto"])
        .arg(from)
        .arg(to))
}

/// Runs a command to its end; an error has what it printed.
pub(super) fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let (printed, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let program = command.get_program();
    Err(io::Error::other(format!(
        "{program:?}: {}\n{printed}{errors}",
        output.status
    )))
}

/// The name is predictable, so another user may have created the directory first.
pub(crate) fn own_dir() -> io::Result<PathBuf> {
    let user = geteuid().as_raw();
    let dir = env::temp_dir().join(format!("polylock-templates-{user}"));
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(&dir)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        let complaint = format!("{} is not a directory of this user's alone", dir.display());
        return Err(io::Error::other(complaint));
    }
    Ok(dir)
}

/// What is made is called so.
pub(super) const DATA: &str = "data";
