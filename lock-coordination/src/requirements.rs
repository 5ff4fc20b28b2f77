//! The requirements on the locks below.

use polylock_core::admin::LockAdmin;
use polylock_core::{DistributedLock, Error, ErrorKind, Fencing, FencingToken, LockGuard, Result};

/// Refuses locks that lack what an election or a job needs, before anything is sent.
pub(crate) fn check(locks: &dyn DistributedLock) -> Result<()> {
    let capabilities = locks.capabilities();
    let has_admin = capabilities.admin && locks.admin().is_some();
    match (has_admin, capabilities.fencing) {
        (false, _) => Err(lacking(locks, "an administration")),
        (true, Fencing::Unavailable) => Err(lacking(locks, "fencing tokens")),
        (true, _) => Ok(()),
    }
}

pub(crate) fn admin(locks: &dyn DistributedLock) -> Result<&dyn LockAdmin> {
    let admin = locks.admin();
    admin.ok_or_else(|| lacking(locks, "an administration"))
}

pub(crate) fn token(locks: &dyn DistributedLock, guard: &LockGuard) -> Result<FencingToken> {
    let token = guard.fencing_token();
    token.ok_or_else(|| lacking(locks, "fencing tokens"))
}

fn lacking(locks: &dyn DistributedLock, what: &str) -> Error {
    let message = format!("elections and jobs need {what}, which these locks lack");
    Error::new(ErrorKind::Unsupported, message).with_backend(locks.capabilities().backend)
}
