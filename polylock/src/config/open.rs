//! Who can read a file.

use std::path::Path;

/// Whether every user of the host can read the file; false where that cannot be found out.
#[cfg(unix)]
pub(super) fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    const BY_OTHERS: u32 = 0o004;
    file.metadata()
        .is_ok_and(|metadata| metadata.permissions().mode() & BY_OTHERS != 0)
}

#[cfg(not(unix))]
pub(super) fn is_open(_file: &Path) -> bool {
    false
}
