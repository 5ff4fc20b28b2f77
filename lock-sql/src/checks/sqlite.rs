//! The check of a database file: a table over the file system that it is on.

use std::path::{Path, PathBuf};

use polylock_core::{HealthCheck, HealthRule, Status};

use crate::sqlite::{Alias, FileSystem, denied_beside};

/// Checks a file, or the nearest directory above one that does not exist; neither is made.
pub(crate) fn check_file(path: &Path) -> Vec<HealthCheck> {
    // A link leads to the file that the log is beside.
    let path = path.canonicalize().or_else(|_| std::path::absolute(path));
    let path = path.unwrap_or_default();
    let nearest = path.ancestors().find(|parent| parent.exists());
    let found = DatabaseFile {
        file_system: nearest.and_then(FileSystem::of),
        alias: nearest.and_then(|file| Alias::of(file).ok().flatten()),
        denied: denied_beside(&path),
    };
    HealthRule::check_all(RULES, &found)
}

/// What is known of a file.
struct DatabaseFile {
    /// `None` if the system does not tell it.
    file_system: Option<FileSystem>,
    alias: Option<Alias>,
    /// The log or the shared memory, if this user cannot read and write it.
    denied: Option<PathBuf>,
}

/// Judges the file system, and the names of the file in it.
const RULES: &[HealthRule<DatabaseFile>] = &[
    HealthRule {
        id: FILESYSTEM,
        rule: |found| match found.file_system {
            Some(FileSystem::Network) => {
                Status::Error.because("the file is on a network file system")
            }
            _ => None,
        },
        impact: "locks in SQLite do not exclude there",
        fix: "put the file on a disk of this machine, or use a server",
    },
    HealthRule {
        id: FILESYSTEM,
        rule: |found| match (found.file_system, found.alias) {
            (Some(FileSystem::Network), _) | (_, None) => None,
            (_, Some(Alias::HardLink)) => Status::Error.because("the file has hard links"),
            (_, Some(Alias::Mount)) => {
                Status::Error.because("the file is mounted without its directory")
            }
        },
        impact: "clients under different names of the file do not see each other's locks",
        fix: "use one name of the file; to share it with a container, mount its directory",
    },
    HealthRule {
        id: FILESYSTEM,
        rule: |found| match (found.file_system, found.alias, &found.denied) {
            (Some(FileSystem::Network), ..) | (_, Some(_), _) | (.., None) => None,
            (.., Some(denied)) => {
                Status::Error.because(format!("this user cannot read and write {denied:?}"))
            }
        },
        impact: "this user gets no locks while another one has the file open",
        fix: "give the directory the group of the file and the setgid bit (chmod 2770), and the file mode 660",
    },
    HealthRule {
        id: FILESYSTEM,
        rule: |found| match found.file_system {
            Some(FileSystem::Network) => None,
            _ if found.alias.is_some() || found.denied.is_some() => None,
            Some(FileSystem::Memory) => Status::Warning.because("the file is in memory"),
            Some(FileSystem::Local) => Status::Ok.because("the file system is a local one"),
            None => Status::NotChecked.because("the system does not tell the file system"),
        },
        impact: "a restart of the machine takes the file, and fencing tokens go on from its clock",
        fix: "put the file on a disk",
    },
];

const FILESYSTEM: &str = "filesystem";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_keeps_no_locks_is_a_fault() {
        for (file_system, alias, status) in [
            (Some(FileSystem::Network), None, Status::Error),
            (Some(FileSystem::Network), Some(Alias::Mount), Status::Error),
            (Some(FileSystem::Memory), None, Status::Warning),
            (Some(FileSystem::Memory), Some(Alias::Mount), Status::Error),
            (Some(FileSystem::Local), None, Status::Ok),
            (
                Some(FileSystem::Local),
                Some(Alias::HardLink),
                Status::Error,
            ),
            (None, None, Status::NotChecked),
            (None, Some(Alias::HardLink), Status::Error),
        ] {
            let file = DatabaseFile {
                file_system,
                alias,
                denied: None,
            };
            let found = HealthRule::check_all(RULES, &file);
            let statuses: Vec<_> = found.iter().map(|check| check.status).collect();
            assert_eq!(statuses, [status], "{file_system:?}, {alias:?}");
        }
    }

    #[test]
    fn a_file_beside_the_database_that_this_user_cannot_use_is_a_fault() {
        for (alias, summary) in [
            (None, "this user cannot read and write \"/srv/db-shm\""),
            (Some(Alias::HardLink), "the file has hard links"),
        ] {
            let file = DatabaseFile {
                file_system: Some(FileSystem::Local),
                alias,
                denied: Some(PathBuf::from("/srv/db-shm")),
            };
            let found = HealthRule::check_all(RULES, &file);
            let found: Vec<_> = found.iter().map(|it| (it.status, &*it.summary)).collect();
            assert_eq!(found, [(Status::Error, summary)]);
        }
    }
}
