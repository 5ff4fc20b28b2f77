//! The values behind keys, and the words that messages have for them.

use std::time::Duration;

use polylock_core::Wait;
use polylock_core::suggest::{list, nearest};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// A value that is no list and no table. It is read first, so that errors need not repeat it as
/// those of serde do.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Scalar {
    Bool(bool),
    Integer(i64),
    Text(String),
    Other(IgnoredAny),
}

impl Scalar {
    pub(super) fn text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err("this must be a string".to_owned()),
        }
    }
}

/// The value of a parameter of a URL.
#[derive(Deserialize)]
#[serde(try_from = "Scalar")]
pub(super) struct Parameter(pub(super) String);

impl TryFrom<Scalar> for Parameter {
    type Error = &'static str;

    fn try_from(value: Scalar) -> Result<Self, Self::Error> {
        match value {
            Scalar::Bool(value) => Ok(Self(if value { "on" } else { "off" }.to_owned())),
            Scalar::Integer(number) => Ok(Self(number.to_string())),
            Scalar::Text(text) => Ok(Self(text)),
            Scalar::Other(_) => Err("this must be a string, a whole number or a boolean"),
        }
    }
}

/// A time that is written with its unit, or as a word.
pub(super) trait Time: Sized {
    fn parse(text: &str) -> Result<Self, String>;
}

/// Reads a field of a struct.
pub(super) fn time<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Time,
{
    let value = match Scalar::deserialize(deserializer)? {
        Scalar::Integer(number) => Err(without_unit(&number.to_string())),
        other => other.text().and_then(|text| T::parse(text.trim())),
    };
    value.map(Some).map_err(D::Error::custom)
}

fn without_unit(number: &str) -> String {
    format!("a duration has a unit, write \"{number}s\"")
}

impl Time for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(without_unit(text));
        }
        humantime::parse_duration(text).map_err(|_| {
            let quoted = quoted(text);
            format!("{quoted} is not a duration, write for example \"500ms\", \"30s\" or \"5m\"")
        })
    }
}

impl Time for Wait {
    fn parse(text: &str) -> Result<Self, String> {
        match (text, Duration::parse(text)) {
            ("forever", _) => Ok(Self::Forever),
            ("never", _) => Ok(Self::Never),
            (_, Ok(Duration::ZERO)) => Err("write \"never\" for a wait of zero".to_owned()),
            (_, Ok(limit)) => Ok(Self::AtMost(limit)),
            (_, Err(wrong)) => Err(format!("{wrong}, or \"never\" or \"forever\"")),
        }
    }
}

/// A limit, or `forever`.
impl Time for Option<Duration> {
    fn parse(text: &str) -> Result<Self, String> {
        match (text, Duration::parse(text)) {
            ("forever", _) => Ok(None),
            (_, Ok(limit)) => Ok(Some(limit)),
            (_, Err(wrong)) => Err(format!("{wrong}, or \"forever\"")),
        }
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

/// `, did you mean "ttl"?`, or which there are.
pub(super) fn instead_of<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
) -> String {
    let candidates = candidates.into_iter();
    match nearest(text, candidates.clone()) {
        Some(meant) => format!(", did you mean {}?", quoted(meant)),
        None => format!(" (known: {})", list(candidates.map(shown))),
    }
}

/// The text in quotes, unless it may be a URL in the wrong place.
pub(super) fn quoted(text: &str) -> String {
    match is_harmless(text) {
        true => format!("{text:?}"),
        false => HIDDEN.to_owned(),
    }
}

/// The text itself, unless it may be a URL in the wrong place.
pub(super) fn shown(text: &str) -> &str {
    if is_harmless(text) { text } else { HIDDEN }
}

const HIDDEN: &str = "***";

/// Whether a text in the place of something else can be no URL with a password.
fn is_harmless(text: &str) -> bool {
    !text.contains(['@', ':', '/']) && text.len() <= MAX_NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_words() {
        let ninety = Duration::from_secs(90);
        assert_eq!(Wait::parse("1m 30s"), Ok(Wait::AtMost(ninety)));
        assert_eq!(Wait::parse("never"), Ok(Wait::Never));
        assert_eq!(Wait::parse("forever"), Ok(Wait::Forever));
        assert_eq!(Option::parse("forever"), Ok(None::<Duration>));
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

    #[test]
    fn urls_are_not_repeated() {
        let url = "redis://:secret@cache";
        assert!(Wait::parse(url).unwrap_err().starts_with("***"));
        assert_eq!([quoted("main"), quoted(url)], ["\"main\"", "***"]);
        // Names of tables are candidates, and may be wrong themselves.
        let known = [url, "main"];
        assert_eq!(instead_of("color", known), " (known: ***, main)");
        let near = instead_of("redis://:secret@cach", known);
        assert_eq!(near, ", did you mean ***?");
    }
}
