//! Values that are written as text: durations, waits, names.

use std::time::Duration;

use lock_core::Wait;

use super::words::{is_harmless, quoted};

/// Reads a duration with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("a duration has a unit, write \"{text}s\""));
    }
    humantime::parse_duration(text).map_err(|_| {
        let quoted = quoted(text);
        format!("{quoted} is no duration, write for example \"500ms\", \"30s\" or \"5m\"")
    })
}

/// Reads `never`, `forever` or a duration.
pub(super) fn wait(text: &str) -> Result<Wait, String> {
    match text.trim() {
        "forever" => Ok(Wait::Forever),
        "never" => Ok(Wait::Never),
        text => match duration(text) {
            Ok(Duration::ZERO) => Err("a wait without length is written \"never\"".to_owned()),
            Ok(limit) => Ok(Wait::AtMost(limit)),
            Err(wrong) => Err(format!("{wrong}, or \"never\" or \"forever\"")),
        },
    }
}

/// Reads `forever` or a duration.
pub(super) fn max_hold(text: &str) -> Result<Option<Duration>, String> {
    match text.trim() {
        "forever" => Ok(None),
        text => match duration(text) {
            Ok(limit) => Ok(Some(limit)),
            Err(wrong) => Err(format!("{wrong}, or \"forever\"")),
        },
    }
}

/// Checks the name of a backend or a class.
pub(super) fn name(text: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if (1..=MOST_NAME).contains(&text.len()) && text.chars().all(is_name) {
        return Ok(());
    }
    let named = match is_harmless(text) {
        true => format!("{text:?} is no name: "),
        false => String::new(),
    };
    Err(format!(
        "{named}a name has 1 to {MOST_NAME} letters, digits, - and _"
    ))
}

const MOST_NAME: usize = 64;

pub(super) fn show_wait(wait: Wait) -> String {
    match wait {
        Wait::AtMost(limit) => show_duration(limit),
        Wait::Forever => "forever".to_owned(),
        _ => "never".to_owned(),
    }
}

pub(super) fn show_max_hold(max_hold: Option<Duration>) -> String {
    max_hold.map_or_else(|| "forever".to_owned(), show_duration)
}

pub(super) fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        let table = [
            ("30", "a duration has a unit, write \"30s\""),
            (
                "soon",
                "\"soon\" is no duration, write for example \"500ms\", \"30s\" or \"5m\"",
            ),
        ];
        for (text, wrong) in table {
            assert_eq!(duration(text).unwrap_err(), wrong);
        }
    }

    #[test]
    fn waits_have_words() {
        assert_eq!(wait("5s"), Ok(Wait::AtMost(Duration::from_secs(5))));
        assert_eq!(wait("never"), Ok(Wait::Never));
        assert_eq!(wait("forever"), Ok(Wait::Forever));
        assert!(wait("0s").unwrap_err().contains("\"never\""));
        assert!(
            wait("redis://:secret@cache")
                .unwrap_err()
                .starts_with("***")
        );
        assert_eq!(max_hold("forever"), Ok(None));
        assert_eq!(
            show_wait(Wait::AtMost(Duration::from_millis(1500))),
            "1s 500ms"
        );
    }

    #[test]
    fn names_are_short_and_plain() {
        for right in ["main", "a-b_C9"] {
            assert_eq!(name(right), Ok(()));
        }
        for wrong in ["", "a b", "a.b", &"a".repeat(65)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
