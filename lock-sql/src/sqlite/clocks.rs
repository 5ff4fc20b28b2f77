use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lock_core::engine::Engine;

use crate::error::Cause;
use crate::table::{BootId, Scene};

/// The boot of this machine, and its clocks.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    engine: Engine,
    boot: BootId,
}

impl Clocks {
    pub(crate) fn new(engine: Engine) -> Result<Self, Cause> {
        let boot = std::fs::read_to_string(BOOT_ID).and_then(|text| parse(&text));
        let boot = boot.map_err(|e| Cause::Unportable {
            source: Arc::new(e),
        })?;
        Ok(Self { engine, boot })
    }

    /// The scene of what is done now.
    pub(crate) fn now(&self, floor: u64) -> Scene {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let unix = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
        Scene {
            boot: self.boot,
            moment: self.engine.now(),
            unix,
            floor,
        }
    }
}

/// The same in every container of the machine, and another one after each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads a UUID in its usual form.
fn parse(text: &str) -> io::Result<BootId> {
    let digits = text.trim().replace('-', "");
    let valid = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = if valid {
        u128::from_str_radix(&digits, 16).ok()
    } else {
        None
    };
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
        for wrong in [
            "",
            "27899ed0",
            "27899ed0-3477-4021-8ab6-5e4d7f73845g",
            &"+1".repeat(16),
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
