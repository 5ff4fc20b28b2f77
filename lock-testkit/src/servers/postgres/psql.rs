use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::launch::program;
use crate::servers::shared::unique;

/// The way to a server past the code under test: its socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Psql<'a> {
    pub(super) dir: &'a Path,
    pub(super) port: u16,
    pub(super) database: &'a str,
}

impl Psql<'_> {
    /// Runs the statements as the superuser and returns the rows of all of them, null as nothing.
    pub(super) fn run(&self, text: &str) -> io::Result<Vec<Vec<String>>> {
        self.run_as(SUPERUSER, SUPERUSER, text)
    }

    /// The same as somebody else.
    pub(super) fn run_as(
        &self,
        user: &str,
        password: &str,
        text: &str,
    ) -> io::Result<Vec<Vec<String>>> {
        let mut command = Command::new(program("psql")?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        let mut psql = command
            .args(["-X", "-q", "-A", "-t", "-w", "-F", FIELD, "-0"])
            .args(["-v", "ON_ERROR_STOP=1", "-f", "-", "-h"])
            .arg(self.dir)
            .args(["-p", &self.port.to_string()])
            .args(["-U", user, "-d", self.database])
            .env("PGPASSWORD", password)
            .env("PGCONNECT_TIMEOUT", "5")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = psql.stdin.take();
        if let Some(input) = &mut input {
            // Where it does not connect it reads nothing, and says why.
            drop(input.write_all(text.as_bytes()));
        }
        drop(input);
        let output = psql.wait_with_output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(errors));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let fields = |row: &str| row.split(FIELD).map(str::to_owned).collect();
        Ok(printed.split_terminator('\0').map(fields).collect())
    }
}

impl Psql<'_> {
    /// Makes a database of the role `test`, with a name that no other has.
    pub(super) fn make_database(&self) -> io::Result<String> {
        let name = unique("test");
        self.run(&format!("CREATE DATABASE {name} OWNER test"))?;
        Ok(name)
    }
}

/// Text as SQL writes it.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as SQL writes it.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) const SUPERUSER: &str = "postgres";

/// Between the fields of a row; none of the texts has it.
const FIELD: &str = "\u{1f}";
