//! The files that this process has open, of all databases.
//!
//! SQLite gives a connection the shared memory that the process has open for the same database, even if
//! its name has come to mean another file, which other processes use. Such a connection would see none of
//! their locks.

use std::path::Path;
use std::sync::{Arc, Weak};

use super::file::{self, Files};
use super::write_queue::WriteQueue;
use crate::error::SqlCause;
use crate::mutex::Mutex;

/// Those of all connections.
static OPEN: Mutex<Vec<Weak<Files>>> = Mutex::new(Vec::new());

static QUEUES: Mutex<Vec<Weak<WriteQueue>>> = Mutex::new(Vec::new());

/// Refuses to open a database, by device and inode, whose files were replaced since the process opened them.
pub(super) fn check(database: (u64, u64)) -> Result<(), SqlCause> {
    let open: Vec<_> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    let mut others = open.iter().filter(|other| other.database() == database);
    others.try_for_each(|other| other.check())
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
    if others.any(|other| other.database() == files.database() && *other != files) {
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
