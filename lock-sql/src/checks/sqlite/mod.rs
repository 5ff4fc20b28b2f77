//! What is looked at on SQLite.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use lock_core::HealthCheck;

use crate::dialect::sqlite::{COLUMNS, LAYOUT};
use crate::sqlite::is_network;

/// What there is where the database file should be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) path: PathBuf,
    /// Of SQLite itself, which is compiled in.
    pub(crate) version: String,
    /// The magic number of its file system.
    pub(crate) file_system: Option<u32>,
    /// By how many nanoseconds the boot clock of this process is ahead of that of the kernel, if the
    /// system says.
    pub(crate) clock_shift: Option<i64>,
    /// Whether a container has put a boot id of its own over that of the kernel.
    pub(crate) has_own_boot_id: bool,
    /// Whether a missing directory is made.
    pub(crate) makes_directory: bool,
    pub(crate) has_directory: bool,
    /// Whether files can be made in it, or in the nearest one that is there.
    pub(crate) directory_takes_files: bool,
    pub(crate) has_file: bool,
    pub(crate) file_takes_writes: bool,
    /// None if the file is not there, or could not be opened.
    pub(crate) inside: Option<Inside>,
}

/// What an open database says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    /// Whether the file is a database, or empty.
    pub(crate) is_database: bool,
    /// The level of flushing, as the connection of locks sets it.
    pub(crate) synchronous: i64,
    pub(crate) has_table: bool,
    pub(crate) columns: Vec<String>,
    pub(crate) layout: Option<i64>,
}

pub(crate) fn health_checks(facts: &Facts, table: &str) -> Vec<HealthCheck> {
    let version = format!("SQLite {} is compiled in", facts.version);
    let mut found = vec![HealthCheck::ok("version", version), file_system(facts)];
    found.extend(rights(facts));
    found.push(flush(facts));
    found.push(table_of(facts, table));
    found.push(clock(facts));
    found
}

/// Whether locks may be looked for in the file at all.
pub(crate) fn may_open(facts: &Facts) -> bool {
    let is_far = facts.file_system.is_some_and(is_network);
    facts.has_file && !is_far && rights(facts).iter().all(|found| !found.is_fault())
}

fn file_system(facts: &Facts) -> HealthCheck {
    let Some(number) = facts.file_system else {
        return HealthCheck::not_checked("filesystem", "the system does not tell its file system");
    };
    if is_network(number) {
        return HealthCheck::error(
            "filesystem",
            format!("{:?} is on a network file system", facts.path),
            "locks in SQLite exclude nobody there",
            "put the file on a disk of this machine, or use a server",
        );
    }
    if [TMPFS, RAMFS].contains(&number) {
        return HealthCheck::warning(
            "filesystem",
            format!("{:?} is on a file system in memory", facts.path),
            "a restart of the machine takes the file, and fencing tokens go on from its clock",
            "put the file on a disk",
        );
    }
    let known = LOCAL.iter().find(|(magic, _)| *magic == number);
    let what = match known {
        Some((_, name)) => format!("the file system is {name}"),
        None => format!("the file system is a local one, of type {number:#x}"),
    };
    HealthCheck::ok("filesystem", what)
}

const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;

/// See statfs(2).
const LOCAL: [(u32, &str); 6] = [
    (0x2FC1_2FC1, "zfs"),
    (0x5846_5342, "xfs"),
    (0x794C_7630, "overlay, which is one container's"),
    (0x9123_683E, "btrfs"),
    (0x0000_EF53, "ext"),
    (0xF2F5_2010, "f2fs"),
];

fn rights(facts: &Facts) -> Vec<HealthCheck> {
    let mut found = Vec::new();
    let mut error = |what, impact, fix| {
        found.push(HealthCheck::error("rights", what, impact, fix));
    };
    let path = &facts.path;
    if !facts.has_directory && !facts.makes_directory {
        let what = format!("the directory of {path:?} does not exist");
        error(
            what,
            "no file can be made",
            "make it, or write create-dir=on",
        );
    } else if !facts.directory_takes_files {
        let what = format!("this user may make no files in the directory of {path:?}");
        let impact = "the log and the shared memory are files beside the database";
        error(what, impact, "let this user write there");
    }
    if facts.has_file && !facts.file_takes_writes {
        let what = format!("this user may not read and write {path:?}");
        error(
            what,
            "no lock can be taken",
            "let this user read and write it",
        );
    }
    if found.is_empty() {
        let what = match (facts.has_file, facts.has_directory) {
            (true, _) => "this user may write the file, and make others beside it",
            (false, true) => "this user may make the file",
            (false, false) => "this user may make the directory and the file",
        };
        found.push(HealthCheck::ok("rights", what));
    }
    found
}

fn flush(facts: &Facts) -> HealthCheck {
    match &facts.inside {
        Some(inside) if inside.is_database && inside.synchronous < FULL => HealthCheck::warning(
            "flush",
            format!("synchronous is {}", inside.synchronous),
            "a crash of the machine takes back fencing tokens",
            "use a SQLite that takes PRAGMA synchronous = FULL",
        ),
        _ => HealthCheck::ok(
            "flush",
            "synchronous is FULL on connections that take locks",
        ),
    }
}

const FULL: i64 = 2;

/// None of this lets two hold a lock; it says how soon a lock is free whose holder has died.
fn clock(facts: &Facts) -> HealthCheck {
    let seconds = |nanos: i64| Duration::from_nanos(nanos.unsigned_abs()).as_secs_f64();
    let what = match facts.clock_shift {
        None => {
            return HealthCheck::warning(
                "clock",
                "the system does not say whether this process is in a time namespace",
                "a lock whose holder has died is free after one more ttl, and for waiters only",
                "let this process read /proc/self/timens_offsets",
            );
        }
        Some(0) if facts.has_own_boot_id => {
            "this container has a boot id of its own; boot clock and wall clock tell whether a \
             lease of another one has ended"
                .to_owned()
        }
        Some(0) => "the boot clock is that of the kernel".to_owned(),
        Some(shift) => {
            let side = if shift > 0 { "ahead" } else { "behind" };
            format!(
                "this process is in a time namespace, {} s {side}; leases are compared by the \
                 clock of the kernel",
                seconds(shift)
            )
        }
    };
    HealthCheck::ok("clock", what)
}

fn table_of(facts: &Facts, table: &str) -> HealthCheck {
    let Some(inside) = &facts.inside else {
        return not_looked_at("table", facts, "a start makes the file and the table");
    };
    let error = |what: String, fix: &'static str| {
        HealthCheck::error("table", what, "no lock can be taken", fix)
    };
    if !inside.is_database {
        let what = format!(
            "{:?} is damaged, or something else than a database",
            facts.path
        );
        return error(what, "name another file");
    }
    if !inside.has_table {
        let what = format!("there is no table {table} yet, a start makes it");
        return HealthCheck::ok("table", what);
    }
    let has = |column: &&str| inside.columns.iter().any(|found| found == column);
    let missing: Vec<_> = COLUMNS.split(", ").filter(|column| !has(column)).collect();
    let other = "name another one by table=NAME, or use the version of polylock that made it";
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return error(format!("the table {table} has no columns {missing}"), other);
    }
    match inside.layout {
        None => HealthCheck::ok(
            "table",
            format!("the table {table} is empty, a start describes it"),
        ),
        Some(LAYOUT) => HealthCheck::ok(
            "table",
            format!("the table {table} is there, with layout {LAYOUT}"),
        ),
        Some(layout) => {
            let what = format!(
                "the table {table} has layout {layout}, and this version knows layout {LAYOUT}"
            );
            error(what, other)
        }
    }
}

fn not_looked_at(check: &'static str, facts: &Facts, missing: &'static str) -> HealthCheck {
    match facts.has_file {
        true => HealthCheck::not_checked(check, "the file is not opened"),
        false => HealthCheck::ok(check, missing),
    }
}
