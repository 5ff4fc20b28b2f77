//! The check of a database file: a table over the file system that it is on.

use std::path::Path;

use polylock_core::{HealthCheck, HealthRule, Status};

use crate::sqlite::FileSystem;

/// Checks a file, or the nearest directory above one that does not exist; neither is made. What the first lock
/// reports is not looked for: a network file system, another name of the file, rights.
pub(crate) fn check_file(path: &Path) -> Vec<HealthCheck> {
    let path = path.canonicalize().or_else(|_| std::path::absolute(path));
    let path = path.unwrap_or_default();
    let nearest = path.ancestors().find(|parent| parent.exists());
    HealthRule::check_all(RULES, &nearest.and_then(FileSystem::of))
}

/// Judges the file system, if the system tells it.
const RULES: &[HealthRule<Option<FileSystem>>] = &[HealthRule {
    id: "filesystem",
    rule: |found| match found {
        Some(FileSystem::Memory) => Status::Warning.because("the file is in memory"),
        Some(FileSystem::Local) => Status::Ok.because("the file system is a local one"),
        Some(FileSystem::Network) => None,
        None => Status::NotChecked.because("the system does not tell the file system"),
    },
    impact: "a restart of the machine takes the file, and fencing tokens go on from its clock",
    fix: "put the file on a disk",
}];
