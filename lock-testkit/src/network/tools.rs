use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::namespace::Namespace;

/// A program that runs in the network of a namespace, and is the process that is started.
pub(super) fn command_in(namespace: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display()));
    command.arg("--").arg(program);
    command
}

/// Runs lines of `ip` in a namespace, or in that of the test process.
pub(super) fn ip(namespace: Option<&Namespace>, lines: &str) -> io::Result<()> {
    tool(namespace, &["ip", "-batch", "-"], lines).map(drop)
}

/// Runs a program to its end in a namespace, or in that of the test process, and returns what it
/// prints. An error has what it complains of.
pub(super) fn tool(
    namespace: Option<&Namespace>,
    words: &[&str],
    input: &str,
) -> io::Result<String> {
    let mut command = match namespace {
        Some(namespace) => command_in(&namespace.path(), words[0]),
        None => Command::new(words[0]),
    };
    let mut child = command
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(words[0], &error))?;
    let sent = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let words = words.join(" ");
        return Err(io::Error::other(format!("{words}: {complaint}{input}")));
    }
    sent?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An error that says which package a program comes with.
pub(super) fn missing(program: &str, error: &io::Error) -> io::Error {
    let package = match program {
        "ip" | "ss" => "iproute2",
        "nft" => "nftables",
        _ => "util-linux",
    };
    let advice = format!("{program}: {error} (apt-get install {package})");
    io::Error::new(error.kind(), advice)
}
