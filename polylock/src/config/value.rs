//! The values behind keys: durations, waits, names, parameters of a URL.

use std::time::Duration;

use lock_core::Wait;
#[cfg(feature = "config-schema")]
use schemars::{Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::de::{MapAccess, SeqAccess};
use toml::Spanned;

use super::entry::{Entry, Value};
use super::file::Parameter;
use super::origin::Found;
use super::requirement::Requirement;
use super::suggest::{instead_of, is_harmless, quoted};

/// A limit of time, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MaxHold(pub(super) Option<Duration>);

impl Value for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for SecretString {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
}

impl Value for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        duration(text)
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        Err(without_unit(number))
    }

    #[cfg(feature = "config-schema")]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit, such as \"500ms\", \"30s\" or \"1m 30s\".",
            "pattern": "^[0-9]+ *[a-z]",
            "examples": ["30s", "5m"],
        })
    }
}

impl Value for MaxHold {
    fn from_text(text: &str) -> Result<Self, String> {
        max_hold(text)
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        Err(without_unit(number))
    }

    #[cfg(feature = "config-schema")]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit, or \"forever\".",
            "pattern": "^(forever|[0-9]+ *[a-z].*)$",
            "examples": ["1h", "forever"],
        })
    }
}

impl Value for Wait {
    fn from_text(text: &str) -> Result<Self, String> {
        wait(text)
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        Err(without_unit(number))
    }

    #[cfg(feature = "config-schema")]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit, \"never\" or \"forever\".",
            "pattern": "^(never|forever|[0-9]+ *[a-z].*)$",
            "examples": ["5s", "never", "forever"],
        })
    }
}

impl Value for Requirement {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::of_name(text).ok_or_else(|| {
            let hint = instead_of(text, Self::names());
            format!("unknown requirement {}{hint}", quoted(text))
        })
    }
}

impl Value for Vec<Found<Requirement>> {
    const EXPECTED: &'static str = "a list, as in require = [\"fencing\"]";

    fn from_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Result<Self, String>, A::Error> {
        let mut requirements = Self::new();
        while let Some(entry) = list.next_element::<Entry<Requirement>>()? {
            requirements.extend(entry.found());
        }
        Ok(Ok(requirements))
    }

    #[cfg(feature = "config-schema")]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Requirement::names().collect();
        json_schema!({ "type": "array", "items": { "type": "string", "enum": names } })
    }
}

/// `true` and `false` are written "on" and "off".
struct Scalar(String);

impl Value for Scalar {
    const EXPECTED: &'static str = "a text, a number or true or false";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }

    fn from_integer(number: i64) -> Result<Self, String> {
        Ok(Self(number.to_string()))
    }

    fn from_bool(value: bool) -> Result<Self, String> {
        Ok(Self(if value { "on" } else { "off" }.to_owned()))
    }
}

impl Value for Vec<Parameter> {
    const EXPECTED: &'static str = "a table of parameters of the URL";

    fn from_table<'de, A: MapAccess<'de>>(mut table: A) -> Result<Result<Self, String>, A::Error> {
        let mut parameters = Self::new();
        while let Some(name) = table.next_key::<Spanned<String>>()? {
            let span = name.span();
            let name = Found::in_file(name.into_inner(), span);
            if let Some(Scalar(value)) = table.next_value::<Entry<Scalar>>()?.value() {
                let value = value.into();
                parameters.push(Parameter { name, value });
            }
        }
        parameters.sort_by_key(|parameter| parameter.name.at.start());
        Ok(Ok(parameters))
    }

    #[cfg(feature = "config-schema")]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        let of = |name: &str| json_schema!({ "type": name });
        let value = json_schema!({ "anyOf": [of("integer"), of("boolean"), of("string")] });
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}

fn without_unit(number: impl std::fmt::Display) -> String {
    format!("a duration has a unit, write \"{number}s\"")
}

/// Reads a duration with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(without_unit(text));
    }
    humantime::parse_duration(text).map_err(|_| {
        let quoted = quoted(text);
        format!("{quoted} is not a duration, write for example \"500ms\", \"30s\" or \"5m\"")
    })
}

/// Reads `never`, `forever` or a duration.
pub(super) fn wait(text: &str) -> Result<Wait, String> {
    match text.trim() {
        "forever" => Ok(Wait::Forever),
        "never" => Ok(Wait::Never),
        text => match duration(text) {
            Ok(Duration::ZERO) => Err("write \"never\" for a wait of zero".to_owned()),
            Ok(limit) => Ok(Wait::AtMost(limit)),
            Err(wrong) => Err(format!("{wrong}, or \"never\" or \"forever\"")),
        },
    }
}

/// Reads `forever` or a duration.
pub(super) fn max_hold(text: &str) -> Result<MaxHold, String> {
    match text.trim() {
        "forever" => Ok(MaxHold(None)),
        text => match duration(text) {
            Ok(limit) => Ok(MaxHold(Some(limit))),
            Err(wrong) => Err(format!("{wrong}, or \"forever\"")),
        },
    }
}

/// Checks the name of a backend or a class.
pub(super) fn name(text: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_name) {
        return Ok(());
    }
    let named = match is_harmless(text) {
        true => format!("{text:?} is not a name: "),
        false => String::new(),
    };
    Err(format!(
        "{named}a name has 1 to {MAX_NAME} letters, digits, - and _"
    ))
}

const MAX_NAME: usize = 64;

pub(super) fn show_wait(wait: Wait) -> String {
    match wait {
        Wait::AtMost(limit) => show_duration(limit),
        Wait::Forever => "forever".to_owned(),
        _ => "never".to_owned(),
    }
}

pub(super) fn show_max_hold(max_hold: MaxHold) -> String {
    max_hold
        .0
        .map_or_else(|| "forever".to_owned(), show_duration)
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
                "\"soon\" is not a duration, write for example \"500ms\", \"30s\" or \"5m\"",
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
        assert_eq!(max_hold("forever"), Ok(MaxHold(None)));
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
