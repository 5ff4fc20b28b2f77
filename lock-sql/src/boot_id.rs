//! The id of the boot: processes that read the same one have the same boot clock.

use std::io;

/// A UUID that changes with each boot, as the system writes it.
///
/// It is the same in every container, except where the container has its own file, as with LXC, Incus
/// and systemd-nspawn.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn read() -> io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
}

/// A UUID that changes with each boot, as the system writes it.
///
/// sysctl(8) reads it, since sysctlbyname(3) cannot be called without `unsafe`. The process is started
/// once.
#[cfg(target_os = "macos")]
pub(crate) fn read() -> io::Result<String> {
    use std::process::{Command, Stdio};
    use std::sync::OnceLock;

    static BOOT_ID: OnceLock<String> = OnceLock::new();

    if let Some(known) = BOOT_ID.get() {
        return Ok(known.clone());
    }
    let asked = Command::new("/usr/sbin/sysctl")
        .args(["-n", "kern.bootsessionuuid"])
        .stdin(Stdio::null())
        .output()?;
    let boot_id = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    if boot_id.is_empty() {
        let says = String::from_utf8_lossy(&asked.stderr);
        return Err(io::Error::other(format!(
            "sysctl(8) has no boot id: {}",
            says.trim()
        )));
    }
    Ok(BOOT_ID.get_or_init(|| boot_id).clone())
}

/// Unknown on this system.
#[cfg(not(any(target_os = "android", target_os = "linux", target_os = "macos")))]
pub(crate) fn read() -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}
