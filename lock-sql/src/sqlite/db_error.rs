//! What the errors of SQLite and of its files mean.

use std::io;
use std::path::Path;
use std::sync::Arc;

use polylock_core::ErrorKind;
use rustix::fs::{Access, access};

use super::file;
use crate::error::{SqlCause, SqlErrorSource};

/// The result code, whose lowest byte is the kind; see sqlite.org/rescode.html.
pub(crate) fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

pub(super) fn of(path: &Path, error: sqlx::Error) -> SqlCause {
    let code = code(&error);
    let source: SqlErrorSource = Arc::new(error);
    let says = match (code, code.unwrap_or(0) & 0xFF) {
        (_, BUSY | LOCKED | PROTOCOL) => return SqlCause::Busy,
        (Some(READONLY_DBMOVED), _) => {
            let path = path.to_owned();
            return SqlCause::Replaced { path };
        }
        (_, READONLY) => match file::denied_beside(path) {
            Some(beside) => {
                format!(
                    "the database file {path:?} is read-only, as this user cannot write {beside:?}"
                )
            }
            None => format!("the database file {path:?} is read-only"),
        },
        (_, CORRUPT | NOTADB) => {
            format!("the database file {path:?} is damaged, or something else than a database")
        }
        (_, FULL) => format!("the disk of the database file {path:?} is full"),
        (Some(IOERR_SHMSIZE), _) => format!(
            "no room for the shared memory (-shm) of the database file {path:?}: the disk is full, or \
             a limit of file sizes is reached"
        ),
        (None, _) | (_, IOERR | NOMEM) => {
            format!("the database file {path:?} cannot be read or written")
        }
        (_, CANTOPEN | PERM) if path.is_dir() => {
            let says = format!("the database file {path:?} is a directory: name a file in it");
            return SqlCause::said(ErrorKind::InvalidConfig, says, source);
        }
        (_, CANTOPEN | PERM) => match refused(path) {
            Some(refused) => return refused,
            None => match file::denied_beside(path) {
                Some(beside) => {
                    format!(
                        "the database file {path:?} cannot be opened, as this user cannot open {beside:?}"
                    )
                }
                None => return opening(path, source),
            },
        },
        _ => return SqlCause::Refused { source },
    };
    SqlCause::said(ErrorKind::Unavailable, says, source)
}

/// What it means that the file cannot be opened.
pub(super) fn opening(path: &Path, source: SqlErrorSource) -> SqlCause {
    let says = format!("the database file {path:?} cannot be opened");
    SqlCause::said(ErrorKind::Unavailable, says, source)
}

/// The system's error for a file that SQLite could not open without a reason.
fn refused(path: &Path) -> Option<SqlCause> {
    let refused = access(path, Access::READ_OK).err()?;
    Some(opening(path, Arc::new(io::Error::from(refused))))
}

pub(crate) const ERROR: u32 = 1;
const PERM: u32 = 3;
pub(crate) const BUSY: u32 = 5;
pub(crate) const BUSY_SNAPSHOT: u32 = BUSY | (2 << 8);
pub(crate) const LOCKED: u32 = 6;
const NOMEM: u32 = 7;
pub(crate) const READONLY: u32 = 8;
const READONLY_DBMOVED: u32 = READONLY | (4 << 8);
pub(crate) const IOERR: u32 = 10;
const IOERR_SHMSIZE: u32 = IOERR | (19 << 8);
const CORRUPT: u32 = 11;
pub(crate) const FULL: u32 = 13;
const CANTOPEN: u32 = 14;
/// Many processes open the write-ahead log at once.
const PROTOCOL: u32 = 15;
const NOTADB: u32 = 26;
