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
use crate::command::run;

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
        made_once(&self.name()?, |copied| {
            let draft = scratch(&disk_dir(), self.account)?;
            make(draft.path())?;
            // The draft can be on another disk.
            copy_all(&draft.path().join(DATA), copied)
        })
    }

    fn name(&self) -> io::Result<String> {
        let program = fs::metadata(self.program)?;
        let mut hasher = DefaultHasher::new();
        (self.program, program.len(), program.mtime()).hash(&mut hasher);
        (self.recipe, self.account.user()).hash(&mut hasher);
        Ok(format!("{}-{:016x}", self.server, hasher.finish()))
    }
}

/// A file or a directory of this name that stays for later test runs, made by `make` if need be.
pub(crate) fn made_once(
    name: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let place = own_dir()?.join(name);
    if !place.exists() {
        // Held until the end of this process, if need be, and no longer.
        let lock = File::create(place.with_extension("lock"))?;
        lock.lock()?;
        if !place.exists() {
            let draft = place.with_extension("draft");
            if draft.is_dir() {
                fs::remove_dir_all(&draft)?;
            }
            make(&draft)?;
            // The rename is atomic for those that find it.
            fs::rename(draft, &place)?;
        }
    }
    Ok(place)
}

/// Where the directories of servers are: in `/dev/shm` if that has 512 MiB or more, because a busy disk stops a
/// server for seconds, and else in the temporary directory. `LOCK_TESTKIT_DIR` names another place.
#[must_use]
pub fn data_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match (chosen(), rustix::fs::statvfs(memory)) {
        (Some(chosen), _) => chosen,
        (None, Ok(found)) if found.f_blocks * found.f_frsize >= LEAST_MEMORY => memory.to_owned(),
        (None, Ok(_) | Err(_)) => env::temp_dir(),
    }
}

/// Where the directories of servers are that behave in another way in memory.
pub(super) fn disk_dir() -> PathBuf {
    chosen().unwrap_or_else(env::temp_dir)
}

fn chosen() -> Option<PathBuf> {
    let chosen = env::var_os("LOCK_TESTKIT_DIR");
    chosen.filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// A container has 64 MiB, unless it is told otherwise.
const LEAST_MEMORY: u64 = 512 << 20;

/// A directory in `parent` that the account owns.
pub(super) fn scratch(parent: &Path, account: &Account) -> io::Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("polylock-")
        .tempdir_in(parent)?;
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
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]).arg(from).arg(to);
    run(&mut copy, "").map(drop)
}

/// The name is predictable, so another user may have created the directory first.
fn own_dir() -> io::Result<PathBuf> {
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
