use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::launch::{ROOT, SOCKET};
use crate::servers::shared::unique;

/// The way to a server past the code under test: its socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client<'a> {
    pub(super) dir: &'a Path,
    pub(super) database: &'a str,
}

impl Client<'_> {
    /// Runs the statements as `root` and returns the rows of all of them, null as `NULL`.
    pub(super) fn run(&self, text: &str) -> io::Result<Vec<Vec<String>>> {
        self.run_as(ROOT, ROOT, text)
    }

    /// The same as somebody else.
    pub(super) fn run_as(
        &self,
        user: &str,
        password: &str,
        text: &str,
    ) -> io::Result<Vec<Vec<String>>> {
        let mut client = Command::new("mariadb")
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .args(["--connect-timeout=5", "--default-character-set=utf8mb4"])
            .args(["--user", user, "--database", self.database, "--socket"])
            .arg(self.dir.join(SOCKET))
            .env("MYSQL_PWD", password)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = client.stdin.take();
        if let Some(input) = &mut input {
            // Where it does not connect it reads nothing, and says why.
            drop(input.write_all(text.as_bytes()));
        }
        drop(input);
        let output = client.wait_with_output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(errors));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let fields = |row: &str| row.split('\t').map(plain).collect();
        Ok(printed.split_terminator('\n').map(fields).collect())
    }

    /// Makes a database of the user `test`, with a name that no other has.
    pub(super) fn make_database(&self) -> io::Result<String> {
        let name = unique("test");
        self.run(&format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// How many connections the user `test` has, in all or to this database.
    pub(super) fn connections(&self, database: Option<&str>) -> io::Result<usize> {
        let only = database.map(|name| format!(" AND db = '{name}'"));
        let from = "information_schema.processlist WHERE user = 'test'";
        let only = only.unwrap_or_default();
        let rows = self.run(&format!("SELECT count(*) FROM {from}{only}"))?;
        let count = rows.first().and_then(|row| row.first()?.parse().ok());
        count.ok_or_else(|| io::Error::other(format!("{rows:?} is no number")))
    }
}

/// A field without the escapes of the client's batch mode.
fn plain(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field.chars();
    while let Some(letter) = rest.next() {
        let letter = match letter {
            '\\' => match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('0') => '\0',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        };
        text.push(letter);
    }
    text
}
