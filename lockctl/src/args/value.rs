//! Values of options.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use polylock::coordination::Election;
use polylock::layers::Prefix;
use polylock::{Label, LockKey, Wait};
use rustix::process::Signal;
use secrecy::SecretString;

use crate::child::NAMES;

/// Reads `500ms`, `2s`, `1.5m`, or as flock(1) does a bare number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err("must not be negative".to_owned());
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string());
    }
    humantime::parse_duration(text)
        .map_err(|e| format!("{e}; write 500ms, 2s, 1m, or a number of seconds"))
}

/// Reads a duration, or `forever`, which replaces the wait of a configuration.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        _ => duration(text).map(Wait::AtMost),
    }
}

/// Reads `TERM`, `sigterm` or `15`.
pub(crate) fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known = NAMES
        .iter()
        .find(|(known, signal)| *known == name || name.parse() == Ok(signal.as_raw()));
    known.map(|(_, signal)| *signal).ok_or_else(|| {
        let names = NAMES.map(|(name, _)| name).join(", ");
        format!("not one of {names}")
    })
}

/// Reads what no output shows.
pub(crate) fn secret(text: &str) -> Result<SecretString, Infallible> {
    Ok(text.into())
}

/// Reads a note, which is stored as a whole or not at all.
pub(crate) fn note(text: &str) -> Result<String, String> {
    at_most(Label::MAX_NOTE_LEN, text)
}

pub(crate) fn period(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        period if period < Duration::from_secs(1) => Err("must be 1s or more".to_owned()),
        period => Ok(period),
    }
}

pub(crate) fn once_key(text: &str) -> Result<String, &'static str> {
    match text.is_empty() || text.contains('/') {
        true => Err("must not be empty or contain /"),
        false => Ok(text.to_owned()),
    }
}

/// Refuses one that no URL has, and an empty one, as an unset variable of a shell leaves it: it would replace that
/// of the URL or of the file, and lock other keys.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() {
        let message =
            "must not be empty; for keys without a namespace, write ?namespace= in the URL";
        return Err(message.to_owned());
    }
    let any = LockKey::new("any").expect("BUG: a word is a key");
    match Prefix::stored_key(text, &any) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.message().to_owned()),
    }
}

pub(crate) fn address(text: &str) -> Result<String, String> {
    at_most(Election::MAX_ADDRESS_LEN, text)
}

fn at_most(max: usize, text: &str) -> Result<String, String> {
    match text.len() {
        len if len > max => Err(format!("has {len} bytes, max {max}")),
        _ => Ok(text.to_owned()),
    }
}

pub(crate) fn permits(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .map_err(|_| format!("must be a number from 1 to {}", NonZeroU32::MAX))
}

/// Where the JSON lines of `--events` go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum EventsTarget {
    /// An inherited descriptor.
    Descriptor(u32),
    /// A file, appended to.
    File(PathBuf),
}

impl FromStr for EventsTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("fd:") {
            Some(number) => number
                .parse()
                .map(Self::Descriptor)
                .map_err(|_| "fd: wants the number of an open descriptor, as in fd:3".to_owned()),
            None => Ok(Self::File(text.into())),
        }
    }
}

/// The id of a lease; it is enough to release the lock, so it is never printed by chance.
#[derive(Clone, Copy)]
pub(crate) struct LeaseText(pub(crate) polylock::engine::LeaseId);

/// Whether a text is the id of a lease, wherever it stands.
pub(super) fn is_lease(text: &str) -> bool {
    text.trim().parse::<LeaseText>().is_ok()
}

impl FromStr for LeaseText {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = polylock::engine::LeaseId::from_hex(text);
        id.map(Self)
            .ok_or("a lease id has 32 hexadecimal digits, as `lockctl acquire` prints it")
    }
}

impl fmt::Debug for LeaseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseText(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_are_seconds() {
        let table = [
            ("0", 0),
            ("2", 2000),
            ("0.5", 500),
            ("500ms", 500),
            ("2s", 2000),
            ("1.5m", 90_000),
            ("1m 30s", 90_000),
        ];
        for (text, millis) in table {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "-1", "nan", "inf", "2 parsecs", "s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for negative in ["-1", "-5s"] {
            assert_eq!(duration(negative), Err("must not be negative".to_owned()));
        }
        assert_eq!(wait("2s"), Ok(Wait::AtMost(Duration::from_secs(2))));
        assert_eq!(wait("forever"), Ok(Wait::Forever));
    }

    #[test]
    fn a_note_is_not_cut() {
        let longest = "x".repeat(Label::MAX_NOTE_LEN);
        assert_eq!(note(&longest), Ok(longest.clone()));
        assert!(note(&format!("{longest}y")).is_err());
    }

    #[test]
    fn permits_have_a_max() {
        assert_eq!(permits("4294967295"), Ok(NonZeroU32::MAX));
        for wrong in ["0", "4294967296", "-1", "two"] {
            let says = "must be a number from 1 to 4294967295".to_owned();
            assert_eq!(permits(wrong), Err(says), "{wrong}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "term", "SIGTERM", "15"] {
            assert_eq!(signal(text), Ok(Signal::TERM), "{text}");
        }
        assert!(signal("STOP").is_err());
        assert!(signal("").is_err());
    }

    #[test]
    fn a_lease_id_is_not_shown() {
        let id: LeaseText = "0123456789abcdef0123456789abcdef".parse().unwrap();
        assert_eq!(format!("{id:?}"), "LeaseText(..)");
        assert!("0123".parse::<LeaseText>().is_err());
    }
}
