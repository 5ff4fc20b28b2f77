//! One file: the lease of a key.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{Error, ErrorKind, Result};

/// What a file says: the largest token, the lease and its end, and the boot in which that was written.
pub(crate) struct Record {
    file: File,
    pub(crate) token: u64,
    pub(crate) holder: String,
    pub(crate) expires: Moment,
    boot: String,
    now: Moment,
}

impl Record {
    pub(crate) fn read(mut file: File, boot: &str, now: Moment) -> Result<Self> {
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io_error)?;
        let fields: Vec<_> = text.split_whitespace().collect();
        let parsed = match fields[..] {
            [] => Some((0, NOBODY, 0, boot)),
            [token, holder, expires, boot] => match (token.parse(), expires.parse()) {
                (Ok(token), Ok(expires)) => Some((token, holder, expires, boot)),
                _ => None,
            },
            _ => None,
        };
        let unknown = || Error::new(ErrorKind::Protocol, "this is no lock file");
        let (token, holder, expires, since) = parsed.ok_or_else(unknown)?;
        Ok(Self {
            token,
            holder: if since == boot { holder } else { NOBODY }.to_owned(),
            expires: Moment::from_nanos(expires),
            boot: boot.to_owned(),
            file,
            now,
        })
    }

    /// Writes the same number of bytes each time, so that nothing of an earlier record is left behind.
    pub(crate) fn write(&self) -> Result<()> {
        let (token, expires) = (self.token, self.expires.as_nanos());
        let text = format!("{token:020} {} {expires:020} {}\n", self.holder, self.boot);
        self.file.write_all_at(text.as_bytes(), 0).map_err(io_error)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holder != NOBODY && self.expires > self.now
    }

    pub(crate) fn is_held_by(&self, id: LeaseId) -> bool {
        self.is_held() && self.holder == id.to_hex()
    }
}

/// In place of the id of the lease, if there is none.
pub(crate) const NOBODY: &str = "00000000000000000000000000000000";

/// Whatever the error is, the file may have been written.
pub(crate) fn io_error(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the lock file cannot be used")
        .with_source(error)
        .with_unknown_outcome()
}
