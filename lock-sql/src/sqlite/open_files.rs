//! The files that this process has open, of all databases.
//!
//! SQLite gives a connection the shared memory that the process has open for the same database, even if
//! its name has come to mean another file, which other processes use. Such a connection would see none of
//! their locks.

use std::path::Path;
use std::sync::{Arc, Weak};

use polylock_core::engine::Mutex;

use super::file::{self, Files};
use super::write_queue::WriteQueue;
use crate::error::SqlCause;

/// Those of all connections.
static OPEN: Mutex<Vec<Weak<Files>>> = Mutex::new(Vec::new());

static QUEUES: Mutex<Vec<Weak<WriteQueue>>> = Mutex::new(Vec::new());

/// Refuses to open a database, by device and inode, whose files were replaced since the process opened them.
/// Other connections may have opened it by another path.
pub(super) fn check(path: &Path, target: &Path, database: (u64, u64)) -> Result<(), SqlCause> {
    let mut open: Vec<_> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    open.retain(|other| other.database() == database);
    if open.is_empty() {
        return Ok(());
    }
    match Files::of(path, target) {
        Ok(files) if open.iter().all(|other| other.are_same(&files)) => Ok(()),
        _ => Err(SqlCause::Replaced {
            path: path.to_owned(),
        }),
    }
}

/// Enters the files of a new connection, unless the process has others of the same database open.
pub(super) fn enter(files: Files) -> Result<Arc<Files>, SqlCause> {
    // Connections of the application, and those that still close, count as well.
    if !files.are_open() {
        return Err(files.replaced());
    }
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() > 0);
    let mut others = open.iter().filter_map(Weak::upgrade);
    if others.any(|other| other.database() == files.database() && !other.are_same(&files)) {
        return Err(files.replaced());
    }
    let files = Arc::new(files);
    open.push(Arc::downgrade(&files));
    Ok(files)
}

pub(super) fn enter_queue(queue: &Arc<WriteQueue>) {
    let mut queues = QUEUES.lock();
    queues.retain(|other| other.strong_count() > 0);
    queues.push(Arc::downgrade(queue));
}

/// Closes the idle connections to a database whose files were replaced: with one of them open, SQLite
/// would go on with the old files.
pub(super) fn close_replaced(path: &Path) {
    let Ok(database) = file::inode(path) else {
        return;
    };
    let queues: Vec<_> = QUEUES.lock().iter().filter_map(Weak::upgrade).collect();
    for queue in queues {
        queue.close_replaced(database);
    }
}
