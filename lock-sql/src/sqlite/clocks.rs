#[cfg(any(target_os = "linux", target_os = "android"))]
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polylock_core::ErrorKind;
use polylock_core::engine::Engine;

use super::observations::Observations;
use crate::boot_id;
use crate::error::SqlCause;
use crate::table::{BootId, LockRow, ReadContext};

/// The boot of this machine, its clocks, and the observed leases that no clock can judge.
#[derive(Clone)]
pub(crate) struct Clocks {
    engine: Engine,
    boot: BootId,
    shift: Option<i64>,
    seen: Arc<Observations>,
}

impl Clocks {
    pub(crate) fn new(engine: Engine) -> Result<Self, SqlCause> {
        let boot = boot_id::read().and_then(|text| parse(&text));
        let boot = boot.map_err(|e| {
            let (kind, says) = match e.kind() {
                io::ErrorKind::InvalidData
                | io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::Unsupported => {
                    let says =
                        "locks in SQLite need a boot id, which is known on Linux and macOS only";
                    (ErrorKind::Unsupported, says)
                }
                _ => (
                    ErrorKind::Unavailable,
                    "the boot id of the machine cannot be read",
                ),
            };
            SqlCause::said(kind, says, Arc::new(e))
        })?;
        Ok(Self {
            engine,
            boot,
            shift: shift(),
            seen: Arc::default(),
        })
    }

    /// The context of the current operation.
    pub(crate) fn now(&self, floor: u64) -> ReadContext {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let unix = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
        ReadContext {
            boot: self.boot,
            shift: self.shift,
            moment: self.engine.now(),
            unix,
            floor,
        }
    }

    /// Sets the end of the lease in a row that was read before this context.
    pub(crate) fn judge(&self, row: &mut LockRow, ctx: &ReadContext) {
        self.seen.judge(row, ctx);
    }
}

/// By how many nanoseconds the boot clock of this process is ahead of the kernel's; `None` if the system
/// does not report it. It cannot change while the process runs.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn shift() -> Option<i64> {
    let own = match fs::read_link("/proc/self/ns/time") {
        Ok(own) => own,
        // The kernel has no time namespaces.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Some(0),
        Err(_) => return None,
    };
    // The offsets are those of the namespace that children get.
    let of_children = fs::read_link("/proc/self/ns/time_for_children").ok()?;
    if own != of_children {
        return None;
    }
    boot_offset(&fs::read_to_string("/proc/self/timens_offsets").ok()?)
}

/// Nothing shifts it: time namespaces are Linux's.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn shift() -> Option<i64> {
    Some(0)
}

/// Reads the line `boottime SECONDS NANOSECONDS`.
#[cfg(any(target_os = "linux", target_os = "android", test))]
fn boot_offset(offsets: &str) -> Option<i64> {
    let line = offsets
        .lines()
        .find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Reads a UUID in its usual form.
fn parse(text: &str) -> io::Result<BootId> {
    let digits = text.trim().replace('-', "");
    let valid = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| valid);
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the boot id is not a UUID");
    number
        .map(|number| BootId(number.to_be_bytes()))
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_uuid_of_the_kernel() {
        let boot = parse("27899ed0-3477-4021-8ab6-5e4d7f738452\n").unwrap();
        assert_eq!(boot.0[..4], [0x27, 0x89, 0x9e, 0xd0]);
        // As macOS writes it.
        let boot = parse("5E6FFEBE-7C0A-4C11-9B3D-0F2A6D1E8C47").unwrap();
        assert_eq!(boot.0[..4], [0x5e, 0x6f, 0xfe, 0xbe]);
        for wrong in [
            "",
            "27899ed0",
            "27899ed0-3477-4021-8ab6-5e4d7f73845g",
            &"+1".repeat(16),
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn this_system_has_one_boot_id() {
        let read = || parse(&boot_id::read().unwrap()).unwrap();
        assert_eq!(read(), read());
    }

    #[test]
    fn reads_the_offset_of_the_boot_clock() {
        let offsets = "monotonic           0         0\nboottime        86400         7\n";
        assert_eq!(boot_offset(offsets), Some(86_400_000_000_007));
        let behind = "monotonic 5 0\nboottime -2 999999999\n";
        assert_eq!(boot_offset(behind), Some(-1_000_000_001));
        for wrong in [
            "",
            "monotonic 1 2\n",
            "boottime 1",
            "boottime x 0",
            "boottime 9223372036854775807 0",
        ] {
            assert_eq!(boot_offset(wrong), None, "{wrong}");
        }
    }
}
