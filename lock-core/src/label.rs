use std::fmt;
use std::sync::{Arc, LazyLock};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The identity of a holder that others see: its name and where it runs.
///
/// Backends store the label beside the lock, so that `lockctl list` and errors can name the holder.
/// It never contains the command line, which may carry secrets.
///
/// The text form is one line of `name=value` pairs joined by `&`, such as
/// `host=etl-7c9&pid=4121&user=deploy&program=lockctl&note=reindex`; unknown names are skipped.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::Label;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let label = Label::of_this_process().with_note("reindex of the catalog");
/// let _guard = locks.request("catalog").label(label).acquire().await?;
///
/// // Other processes see it, such as in the error of a wait that has timed out.
/// let second = locks.lock_within("catalog", Duration::from_millis(10)).await;
/// let error = second.expect_err("the lock is held");
/// let holder = error.holder().ok_or("the holder is unknown")?;
/// assert_eq!(holder.label.note(), "reindex of the catalog");
/// # Ok(()) }
/// ```
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Label(Arc<LabelFields>);

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct LabelFields {
    host: String,
    pid: u32,
    user: String,
    program: String,
    note: String,
}

impl Label {
    /// Longest note in bytes; a longer one is cut at a character boundary.
    pub const MAX_NOTE_LEN: usize = 256;

    /// Host, process id, user and program of this process, without a note.
    #[must_use]
    pub fn of_this_process() -> Self {
        static LABEL: LazyLock<Label> =
            LazyLock::new(|| Label(Arc::new(LabelFields::of_this_process())));
        LABEL.clone()
    }

    /// Makes a label of a note alone, for holders of other programs; it is cut as [`with_note`](Self::with_note)
    /// does. For implementors.
    #[must_use]
    pub fn of_note(note: impl AsRef<str>) -> Self {
        Self(Arc::new(LabelFields {
            note: cut(note.as_ref()),
            ..LabelFields::default()
        }))
    }

    /// The same with a free text, for example what the work is about.
    #[must_use]
    pub fn with_note(mut self, note: impl AsRef<str>) -> Self {
        Arc::make_mut(&mut self.0).note = cut(note.as_ref());
        self
    }

    /// Name of the machine, empty if unknown.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Process id, 0 if unknown.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Name of the user, empty if unknown.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.0.user
    }

    /// File name of the program, empty if unknown.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.0.program
    }

    /// The free text, mostly empty.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.0.note
    }

    /// The text form, to be stored beside the lock.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = format!("host={}&pid={}", escape(self.host()), self.pid());
        let (user, program, note) = (self.user(), self.program(), self.note());
        for (name, value) in [("user", user), ("program", program), ("note", note)] {
            if !value.is_empty() {
                out.push_str(&format!("&{name}={}", escape(value)));
            }
        }
        out
    }

    /// Reads the text form; what it does not know is left out, and each text is cut to the length of a note:
    /// any client with write access to the store may have written it.
    #[must_use]
    pub fn decode(text: &str) -> Self {
        let mut fields = LabelFields::default();
        for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = cut(&percent_decode_str(value).decode_utf8_lossy());
            match name {
                "host" => fields.host = value,
                "pid" => fields.pid = value.parse().unwrap_or(0),
                "user" => fields.user = value,
                "program" => fields.program = value,
                "note" => fields.note = value,
                _ => {}
            }
        }
        Self(Arc::new(fields))
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(Label::MAX_NOTE_LEN)].to_owned()
}

impl LabelFields {
    fn of_this_process() -> Self {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(|path| path.file_name());
        Self {
            host: host(),
            pid: std::process::id(),
            user: std::env::var("USER")
                .or_else(|_| std::env::var("LOGNAME"))
                .unwrap_or_default(),
            program: program
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            note: String::new(),
        }
    }
}

#[cfg(unix)]
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// What would end a pair, a line or a Redis value, and what a terminal could take for a command.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b'&')
    .add(b'=')
    .add(b'%')
    .add(b'|')
    .add(b' ')
    .add(b'+');

pub(crate) fn escape(value: &str) -> impl fmt::Display {
    utf8_percent_encode(value, RESERVED)
}

/// For people: `etl-7c9 pid 4121`, with user and note where they are known.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, note) = (self.user(), self.note());
        // Another process wrote it: it must not steer a terminal.
        match self.host() {
            "" => f.write_str("unknown host")?,
            host => write!(f, "{}", host.escape_debug())?,
        }
        if self.pid() != 0 {
            write!(f, " pid {}", self.pid())?;
        }
        if !user.is_empty() {
            write!(f, " user {}", user.escape_debug())?;
        }
        if !note.is_empty() {
            write!(f, " note {note:?}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_text_form() {
        let label = Label::of_this_process().with_note("a=b&c d|e\nf % ü");
        assert_eq!(Label::decode(&label.encode()), label);
        assert!(!label.encode().contains(['\n', '|', ' ']));
    }

    #[test]
    fn cuts_a_long_note_between_characters() {
        let label = Label::of_this_process().with_note("é".repeat(Label::MAX_NOTE_LEN));
        assert_eq!(label.note().len(), Label::MAX_NOTE_LEN);
    }

    #[test]
    fn cuts_what_others_have_stored() {
        let long = "é".repeat(1_000_000);
        let label = Label::decode(&format!(
            "host={long}&user={long}&program={long}&note={long}"
        ));
        let parts = [label.host(), label.user(), label.program(), label.note()];
        assert_eq!(parts.map(str::len), [Label::MAX_NOTE_LEN; 4]);
        assert_eq!(Label::of_note(long).note().len(), Label::MAX_NOTE_LEN);
    }

    #[test]
    fn shows_no_control_characters() {
        let label = Label::decode("host=a%1B[31m&pid=7&user=%1B]0;x%07&note=b%0Ac");
        let shown = r#"a\u{1b}[31m pid 7 user \u{1b}]0;x\u{7} note "b\nc""#;
        assert_eq!(label.to_string(), shown);
    }

    #[test]
    fn skips_what_it_does_not_know() {
        let label = Label::decode("shoe=44&pid=x&host=h");
        assert_eq!((label.host(), label.pid()), ("h", 0));
    }
}
