use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::value::SqlValue;
use crate::config::ServerKind;

/// SQL text with arguments: `{1}` is the first one, and may stand in several places; `{{` and `}}`
/// are braces. `{=1}` is a part of a name: the hexadecimal digits of bytes, in a text that is not prepared. `{0}` is a
/// condition that holds: on PostgreSQL, a prepared statement that is executed in the place of another one is an error.
///
/// Other arguments are only values. Other names come from the configuration, which accepts only letters, digits and
/// underscores.
#[derive(Debug, Default)]
pub(crate) struct Sql {
    parts: Vec<Part>,
    /// With `$1`, as PostgreSQL has it, and which argument each number stands for.
    pub(super) numbered: (Arc<str>, Vec<usize>),
    /// With `?`, as MySQL has it, and which argument each mark stands for.
    pub(super) marked: (Arc<str>, Vec<usize>),
    /// The value of [`IDENTITY`](Self::IDENTITY).
    pub(super) identity: i64,
    pub(crate) is_prepared: bool,
}

#[derive(Debug)]
enum Part {
    Text(String),
    /// An argument, counted from 0.
    Argument(usize),
    /// The same in a name.
    Digits(usize),
    /// Whether it is the statement that was meant.
    Identity,
}

impl Sql {
    /// In place of the number of an argument: the hash of the text.
    pub(super) const IDENTITY: usize = usize::MAX;

    /// Reads the template of statements that are sent as text, in one message.
    ///
    /// # Panics
    ///
    /// If braces do not match or hold no number: templates are written here, not by users.
    pub(crate) fn new(text: impl AsRef<str>) -> Arc<Self> {
        Arc::new(Self::read(text.as_ref()))
    }

    /// Reads the template of one statement, which a connection prepares when it is first used.
    pub(crate) fn prepared(text: impl AsRef<str>) -> Arc<Self> {
        Arc::new(Self {
            is_prepared: true,
            ..Self::read(text.as_ref())
        })
    }

    fn read(text: &str) -> Self {
        let parts = parse(text);
        let identity = match parts.iter().any(|part| matches!(part, Part::Identity)) {
            true => hash(text),
            false => 0,
        };
        let mut used = Vec::new();
        let mut number = |argument: usize| {
            let at = used.iter().position(|used| *used == argument);
            1 + at.unwrap_or_else(|| {
                used.push(argument);
                used.len() - 1
            })
        };
        let numbered = render(&parts, |out, part| match part {
            Part::Text(text) => out.push_str(text),
            Part::Argument(n) | Part::Digits(n) => {
                write!(out, "${}", number(*n)).unwrap_or_default();
            }
            Part::Identity => write!(
                out,
                "CASE WHEN ${} = {identity}::bigint THEN true \
                 ELSE current_setting('{MIXED_UP}') IS NULL END",
                number(Self::IDENTITY)
            )
            .unwrap_or_default(),
        });
        let mut order = Vec::new();
        let marked = render(&parts, |out, part| match part {
            Part::Text(text) => out.push_str(text),
            Part::Argument(n) | Part::Digits(n) => {
                order.push(*n);
                out.push('?');
            }
            Part::Identity => out.push_str("TRUE"),
        });
        Self {
            parts,
            numbered: (numbered.into(), used),
            marked: (marked.into(), order),
            identity,
            is_prepared: false,
        }
    }

    /// The text with the values as literals of `server`.
    pub(crate) fn literal(&self, values: &[SqlValue], server: ServerKind) -> String {
        let value = |n: &usize| values.get(*n).unwrap_or(&SqlValue::Null);
        render(&self.parts, |out, part| match part {
            Part::Text(text) => out.push_str(text),
            Part::Argument(n) => out.push_str(&literal(value(n), server)),
            Part::Digits(n) => out.push_str(&hex(value(n).bytes().unwrap_or_default())),
            Part::Identity => out.push_str("TRUE"),
        })
    }
}

fn parse(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let tail = &rest[at..];
        if tail.starts_with("{{") || tail.starts_with("}}") {
            plain.push_str(&tail[..1]);
            rest = &tail[2..];
            continue;
        }
        let end = tail.find('}').expect("BUG: a brace without its pair");
        let argument = &tail[1..end];
        let number = argument.strip_prefix('=').unwrap_or(argument);
        let number: usize = number.parse().expect("BUG: an argument is a number");
        parts.push(Part::Text(std::mem::take(&mut plain)));
        parts.push(match number.checked_sub(1) {
            None => Part::Identity,
            Some(number) if argument.starts_with('=') => Part::Digits(number),
            Some(number) => Part::Argument(number),
        });
        rest = &tail[end + 1..];
    }
    plain.push_str(rest);
    parts.push(Part::Text(plain));
    parts
}

fn render(parts: &[Part], mut write: impl FnMut(&mut String, &Part)) -> String {
    let mut out = String::new();
    parts.iter().for_each(|part| write(&mut out, part));
    out
}

/// The first 63 bits of the SHA-256 hash of the text.
fn hash(text: &str) -> i64 {
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX
}

/// A setting that no server has: the error that it is missing says which statement was executed.
pub(super) const MIXED_UP: &str = "polylock.mixed_up_statements";

/// A value in the text of a statement. Bytes are written in hexadecimal, so that no byte has a special
/// meaning.
pub(crate) fn literal(value: &SqlValue, server: ServerKind) -> String {
    match (value, server) {
        (SqlValue::Null, _) => "NULL".to_owned(),
        // In parentheses, because a sign after an operator may begin a comment or another operator.
        (SqlValue::Int(number), _) => format!("({number})"),
        (SqlValue::Bytes(bytes), ServerKind::MySql) => format!("x'{}'", hex(bytes)),
        // No backslash: its meaning depends on a setting, also of the connection of a caller.
        (SqlValue::Bytes(bytes), ServerKind::Postgres) => {
            format!("decode('{}', 'hex')", hex(bytes))
        }
    }
}

/// Bytes as hexadecimal digits, which no setting of a session gives another meaning.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(digits, "{byte:02x}").unwrap_or_default();
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbered_marked_or_written() {
        let sql = Sql::new("SELECT '{{}}', {2} + {1}, {2}");
        assert_eq!(&*sql.numbered.0, "SELECT '{}', $1 + $2, $1");
        assert_eq!(sql.numbered.1, [1, 0]);
        assert_eq!(&*sql.marked.0, "SELECT '{}', ? + ?, ?");
        assert_eq!(sql.marked.1, [1, 0, 1]);
        let values = [SqlValue::from(-7_i64), SqlValue::from("a'b")];
        assert_eq!(
            sql.literal(&values, ServerKind::Postgres),
            "SELECT '{}', decode('612762', 'hex') + (-7), decode('612762', 'hex')"
        );
        assert_eq!(
            sql.literal(&values, ServerKind::MySql),
            "SELECT '{}', x'612762' + (-7), x'612762'"
        );
        let sql = Sql::prepared("SELECT {2} WHERE {0}");
        assert_eq!(sql.numbered.1, [1, Sql::IDENTITY]);
        assert!(sql.numbered.0.contains(&format!("$2 = {}::", sql.identity)));
        assert_ne!(sql.identity, Sql::prepared("SELECT {1} WHERE {0}").identity);
        assert_eq!(&*sql.marked.0, "SELECT ? WHERE TRUE");
        let sql = Sql::new("EXECUTE a_{=2}({1})");
        assert_eq!(
            sql.literal(&values, ServerKind::Postgres),
            "EXECUTE a_612762((-7))"
        );
        let sql = Sql::new("SELECT {1}");
        assert_eq!(
            sql.literal(&[SqlValue::Null], ServerKind::MySql),
            "SELECT NULL"
        );
    }

    #[test]
    #[should_panic(expected = "BUG")]
    fn a_brace_has_its_pair() {
        drop(Sql::new("SELECT {1"));
    }
}
