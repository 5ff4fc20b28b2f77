//! The check of a database file: a table over the file system that it is on.

use std::path::Path;

use polylock_core::{HealthCheck, HealthRule, Status};

use crate::sqlite::FileSystem;

/// Checks a file, or the nearest directory above one that does not exist; neither is made.
pub(crate) fn check_file(path: &Path) -> Vec<HealthCheck> {
    // A link leads to the file that the log is beside.
    let path = path.canonicalize().or_else(|_| std::path::absolute(path));
    let path = path.unwrap_or_default();
    let nearest = path.ancestors().find(|parent| parent.exists());
    HealthRule::check_all(RULES, &nearest.and_then(FileSystem::of))
}

/// Judges the file system, if the system tells it.
const RULES: &[HealthRule<Option<FileSystem>>] = &[
    HealthRule {
        id: FILESYSTEM,
        rule: |found| match found {
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
        rule: |found| match found {
            Some(FileSystem::Network) => None,
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
        for (file_system, status) in [
            (Some(FileSystem::Network), Status::Error),
            (Some(FileSystem::Memory), Status::Warning),
            (Some(FileSystem::Local), Status::Ok),
            (None, Status::NotChecked),
        ] {
            let found = HealthRule::check_all(RULES, &file_system);
            let statuses: Vec<_> = found.iter().map(|check| check.status).collect();
            assert_eq!(statuses, [status], "{file_system:?}");
        }
    }
}
