//! The default backend: a file of this user.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::exit::Exit;
use crate::output::Failure;

/// `$XDG_STATE_HOME/polylock`, else `$HOME/.local/state/polylock`.
pub(super) fn state_dir(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Failure> {
    // A relative path in these variables is to be ignored, says the XDG specification.
    let absolute = |name| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("state")));
    base.map(|base| base.join("polylock")).ok_or_else(|| {
        Failure::new(
            Exit::Config,
            "there is no backend, and no home for the default one",
        )
        .with_hint("give --backend URL, or set LOCK_URL, XDG_STATE_HOME or HOME")
    })
}

/// The file of this user, whose directory is made.
pub(super) fn default_url(dir: &Path) -> Result<String, Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| {
            Failure::new(
                Exit::Unavailable,
                format!("cannot make the directory {}", dir.display()),
            )
            .with_cause(&e)
            .with_hint("give --backend URL, or set LOCK_URL")
        })?;
    let file = dir
        .join("locks.db")
        .into_os_string()
        .into_string()
        .map_err(|file| {
            let message = format!(
                "the path of the default backend is not UTF-8: {}",
                file.display()
            );
            Failure::new(Exit::Config, message).with_hint("give --backend URL, or set LOCK_URL")
        })?;
    Ok(format!("sqlite:{}", utf8_percent_encode(&file, IN_PATH)))
}

const IN_PATH: &AsciiSet = &CONTROLS.add(b'#').add(b'%').add(b'?').add(b'@');
