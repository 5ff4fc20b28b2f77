use super::{DbError, ErrorClass};
use crate::config::ServerKind;
use crate::dialect::sequence;

impl DbError {
    /// Says which rights the user needs on what the error names: the table, given quoted, or its sequence.
    pub(crate) fn with_missing_right(mut self, server: ServerKind, table: &str) -> Self {
        if self.class == ErrorClass::NoRight {
            let grant = missing_grant(server, table, &self.source);
            self.says = grant.map(|grant| {
                let says = format!("this user lacks a right that locks need: GRANT {grant}");
                says.into()
            });
        }
        self
    }
}

/// The rights on the table or the counter of its tokens, whichever of them an error names. The text around
/// the name is in the language of the server.
fn missing_grant(server: ServerKind, table: &str, error: &sqlx::Error) -> Option<String> {
    let message = error.as_database_error()?.message();
    let sequence = sequence(table);
    let has = |name: &str| {
        let name = name.rsplit('.').next().unwrap_or(name);
        names(message, name.trim_matches(['"', '`']))
    };
    // Its name begins with that of the table.
    Some(match server {
        ServerKind::Postgres if has(&sequence) => format!("SELECT, UPDATE ON SEQUENCE {sequence}"),
        // Only transactions on MySQL delete there.
        ServerKind::MySql if has(&sequence) && message.starts_with("DELETE") => {
            format!("SELECT, INSERT, DELETE ON {sequence}")
        }
        ServerKind::MySql if has(&sequence) => format!("SELECT, INSERT ON {sequence}"),
        _ if has(table) => format!("SELECT, INSERT, UPDATE ON {table}"),
        _ => return None,
    })
}

/// Whether a message of a server is about a table or sequence of this name. It has the name in quotes, at its
/// end on PostgreSQL; other words may look the same.
fn names(message: &str, name: &str) -> bool {
    let is_whole = |(at, _): (usize, &str)| {
        let (before, after) = (&message[..at], &message[at + name.len()..]);
        let is_quoted = before.ends_with(['\'', '`', '"']) && after.starts_with(['\'', '`', '"']);
        is_quoted || before.ends_with(' ') && after.is_empty()
    };
    message.match_indices(name).any(is_whole)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_message_names_a_table_and_not_what_looks_like_it() {
        for (message, is_named) in [
            ("permission denied for table locks", true),
            ("keine Berechtigung für Tabelle locks", true),
            (
                "SELECT command denied to user 'me'@'h' for table `d`.`locks`",
                true,
            ),
            (
                "SELECT command denied to user 'me'@'h' for table 'locks'",
                true,
            ),
            ("permission denied for sequence locks_token", false),
            ("permission denied for schema my_locks", false),
            ("permission denied to terminate locks of others", false),
        ] {
            assert_eq!(names(message, "locks"), is_named, "{message}");
        }
    }
}
