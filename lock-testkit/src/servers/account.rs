use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

/// The user of a server that refuses to run as root.
#[derive(Clone, Debug)]
pub(super) enum Account {
    Other { user: u32, group: u32 },
    Own,
}

impl Account {
    /// The first of these users that there is, if this process is root's; else its own, as without
    /// any names.
    pub(super) fn of(names: &[&str]) -> io::Result<Self> {
        if names.is_empty() || !geteuid().is_root() {
            return Ok(Self::Own);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let found = names.iter().find_map(|name| find(&users, name));
        found.ok_or_else(|| io::Error::other(format!("there is no user of {names:?}")))
    }

    /// Its user's id, for the name of what is made for it.
    pub(super) fn user(&self) -> u32 {
        match self {
            Self::Other { user, .. } => *user,
            Self::Own => geteuid().as_raw(),
        }
    }

    /// Gives it a file or a directory.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Other { user, group } => chown(path, Some(*user), Some(*group)),
            Self::Own => Ok(()),
        }
    }

    /// A program that it runs in this directory.
    pub(super) fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut words = self.words();
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(dir);
        command
    }

    /// A command that runs in a directory and writes its errors to a [file](LOG) there: a server may
    /// outlive the reader of a pipe.
    pub(super) fn words_in(&self, dir: &Path, words: Vec<OsString>) -> Vec<OsString> {
        let script = format!(r#"cd "$0" && exec "$@" 2>>{LOG}"#);
        let mut all = vec!["sh".into(), "-c".into(), script.into(), dir.into()];
        all.extend(self.words());
        all.extend(words);
        all
    }

    /// What becomes a program of the account's.
    fn words(&self) -> Vec<OsString> {
        match self {
            Self::Other { user, group } => vec![
                "setpriv".into(),
                format!("--reuid={user}").into(),
                format!("--regid={group}").into(),
                "--clear-groups".into(),
            ],
            Self::Own => Vec::new(),
        }
    }
}

fn find(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        Some(Account::Other {
            user: fields.nth(1)?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    })
}

/// Where the errors of a server go, in its directory.
pub(super) const LOG: &str = "log";
