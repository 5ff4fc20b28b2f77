//! What `lockctl` says on standard error, and how it fails.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use polylock::Error;

use crate::exit::Exit;
use crate::output::{Writer, escaped};

/// Says things on standard error, as loud as the options ask for.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    /// The number of `-q`: one leaves errors and warnings, two leave nothing.
    pub(crate) quiet: u8,
    background: Option<Writer>,
}

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const BOLD_RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const BOLD_YELLOW: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

impl Console {
    /// A console after that many `-q`.
    pub(crate) fn new(quiet: u8) -> Self {
        Self {
            quiet,
            background: None,
        }
    }

    /// The same, written by a thread: for callers that a pipe or a terminal must not block.
    pub(crate) fn in_background(&self) -> Self {
        let writer = Writer::start("lockctl-stderr", io::stderr(), Self::missing, drop);
        Self {
            quiet: self.quiet,
            background: writer.ok(),
        }
    }

    /// Printed in place of lines that were not read in time.
    pub(crate) fn missing(lines: usize) -> String {
        format!("lockctl: {lines} lines are missing, because they were not read in time\n")
    }

    /// Waits a moment until all is said.
    pub(crate) fn flush(&self) {
        if let Some(writer) = &self.background {
            writer.flush(Duration::from_millis(500));
        }
    }

    /// Whether progress and hints are wanted.
    pub(crate) fn is_chatty(&self) -> bool {
        self.quiet == 0
    }

    /// Says what goes on.
    pub(crate) fn note(&self, message: impl fmt::Display) {
        if self.is_chatty() {
            self.say(format!("lockctl: {message}\n"));
        }
    }

    /// Says what did not go well, although the work goes on.
    pub(crate) fn warn(&self, message: impl fmt::Display) {
        if self.quiet < 2 {
            self.say(format!(
                "lockctl: {BOLD_YELLOW}warning{BOLD_YELLOW:#}: {message}\n"
            ));
        }
    }

    /// Says why the work ends.
    pub(crate) fn fail(&self, failure: &CommandFailure) {
        if self.quiet >= 2 {
            return;
        }
        let mut text = format!(
            "lockctl: {BOLD_RED}error{BOLD_RED:#}: {}\n",
            failure.message
        );
        for (name, detail) in &failure.details {
            if *name != "hint" || self.is_chatty() {
                text += &format!("  {DIM}{:<7}{DIM:#} {detail}\n", format!("{name}:"));
            }
        }
        self.say(text);
    }

    fn say(&self, text: String) {
        match &self.background {
            Some(writer) => writer.line(match AutoStream::choice(&io::stderr()) {
                ColorChoice::Never => strip_str(&text).to_string(),
                _ => text,
            }),
            // Standard error is closed, so this cannot be reported.
            None => drop(anstream::stderr().lock().write_all(text.as_bytes())),
        }
    }
}

/// The current line of a terminal, which only a console in the background shows. It is cleared when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct StatusLine<'a>(pub(crate) &'a Console);

impl StatusLine<'_> {
    /// Replaces the text, which has no control characters. Skipped while the previous one is not written yet.
    pub(crate) fn show(&self, text: impl fmt::Display) {
        if let Some(writer) = self.0.background.as_ref().filter(|writer| writer.is_idle()) {
            // The terminal cuts what is too long, and does not wrap it.
            writer.line(format!("{CLEAR_LINE}\u{1b}[?7l{text}\u{1b}[?7h"));
        }
    }
}

impl Drop for StatusLine<'_> {
    fn drop(&mut self) {
        if let Some(writer) = &self.0.background {
            writer.line(CLEAR_LINE.to_owned());
            // A command may be about to write on it.
            self.0.flush();
        }
    }
}

const CLEAR_LINE: &str = "\r\u{1b}[2K";

/// Why a command of `lockctl` could not do its work.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    exit: Exit,
    message: String,
    details: Vec<(&'static str, String)>,
}

impl CommandFailure {
    /// A failure that ends in the given way.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            details: Vec::new(),
        }
    }

    /// Makes a failure of the system that has no code of its own from its cause.
    pub(crate) fn internal(message: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::new(Exit::Internal, message).with_cause(&cause)
    }

    /// Adds a way out.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        self.with_detail("hint", hint)
    }

    /// Adds a line below the message.
    pub(crate) fn with_detail(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.details.push((name, text.into()));
        self
    }

    /// Adds its causes, unless a line above says the same.
    pub(crate) fn with_cause(mut self, cause: &dyn StdError) -> Self {
        let mut next = Some(cause);
        while let Some(cause) = next {
            let text = escaped(&cause.to_string());
            let mut details = self.details.iter().map(|(_, detail)| detail);
            if !self.message.contains(&text) && !details.any(|detail| detail.contains(&text)) {
                self.details.push(("cause", text));
            }
            next = cause.source();
        }
        self
    }

    /// Ends in another way.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// How the process ends.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The first line alone.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        let failure = Self::new(Exit::of_error(error.kind()), escaped(&error.to_string()));
        match error.source() {
            Some(cause) => failure.with_cause(cause),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use polylock::ErrorKind;

    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes() {
        let error = Error::new(ErrorKind::Unavailable, "cannot open the database")
            .with_backend("sqlite")
            .with_source(io::Error::other("disk\u{1b} gone"));
        let failure = CommandFailure::from(error);
        assert_eq!(failure.exit().code(), 69);
        assert_eq!(failure.message, "sqlite: cannot open the database");
        assert_eq!(failure.details, [("cause", "disk\\u{1b} gone".to_owned())]);
    }

    #[test]
    fn a_cause_is_printed_once() {
        let inner = Error::new(ErrorKind::Unavailable, "cannot connect: refused")
            .with_source(io::Error::other("refused"));
        let error =
            Error::new(ErrorKind::Unavailable, "the backend cannot be opened").with_source(inner);
        let details = CommandFailure::from(error).details;
        assert_eq!(details, [("cause", "cannot connect: refused".to_owned())]);
    }
}
