//! Programs that run to their end.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Runs a command with this input, and returns what it prints. An error has what it complains of.
pub(crate) fn run(command: &mut Command, input: &str) -> io::Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdin = child.stdin.take();
    let sent = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let (program, status) = (command.get_program(), output.status);
        let text = format!("{program:?}: {status}\n{printed}{errors}");
        return Err(io::Error::other(text));
    }
    // One that has failed may not have read all of it.
    sent.map(|()| printed)
}
