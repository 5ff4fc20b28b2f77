//! Refuses backends whose locks no other process sees.

use std::ffi::OsString;

use crate::args::GlobalArgs;
use crate::exit::Exit;
use crate::output::Failure;

/// Refuses an option that is empty, as an unset variable of a shell leaves it: the next backend in
/// line is not the one that was meant.
pub(super) fn check_options(args: &GlobalArgs, is_backend_option: bool) -> Result<(), Failure> {
    let is_backend_empty = args.backend.as_deref().is_some_and(str::is_empty);
    let is_config_empty = args.config.as_deref() == Some("".as_ref());
    let empty = match () {
        () if is_backend_option && is_backend_empty => "--backend",
        () if args.is_config_option && is_config_empty => "--config",
        () => return Ok(()),
    };
    let message = format!("{empty} is empty, so there is no telling which backend is meant");
    Err(Failure::new(Exit::Usage, message).with_hint(format!(
        "check the variable that {empty} is given; without the option a default is used"
    )))
}

/// Refuses the default file where a variable was to name something else.
///
/// To other programs an empty variable is as good as none. Here it would turn a lock of many hosts
/// into one of this user on this host, without a word.
pub(super) fn check_default(env: impl Fn(&str) -> Option<OsString>) -> Result<(), Failure> {
    let is_empty = |name: &&str| env(name).is_some_and(|value| value.is_empty());
    let Some(empty) = ["LOCK_URL", "LOCK_CONFIG"].into_iter().find(is_empty) else {
        return Ok(());
    };
    let message =
        format!("{empty} is set and empty, so there is no telling which backend is meant");
    Err(Failure::new(Exit::Config, message).with_hint(format!(
        "give {empty} a value; unset it to lock in a SQLite file of this user on this host"
    )))
}

/// Refuses a store that ends with this process.
pub(super) fn check_scheme(scheme: &str, is_option: bool) -> Result<(), Failure> {
    if scheme != MEMORY {
        return Ok(());
    }
    let exit = match is_option {
        true => Exit::Usage,
        false => Exit::Config,
    };
    let message = "memory: is a store of one process, and a lock in it excludes no other process";
    Err(Failure::new(exit, message).with_hint(
        "name a server, or a file as in sqlite:PATH: by --backend, by LOCK_URL, or by --default-backend \
         of a configuration file",
    ))
}

const MEMORY: &str = "memory";
