//! The JSON lines of `--events`, and the library's events of held locks.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, SystemTime};

use polylock::layers::{Event, EventKind, Observer};
use polylock::{Error, LockKey};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::args::EventsTarget;
use crate::exit::Exit;
use crate::output::{
    CommandFailure, Console, Escaped, Writer, escaped, json_line, millis, path_text, timestamp,
    unix_ms,
};
use crate::waiting::WaitProgress;

/// Writes what happens, one JSON object for each line. The default writes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    out: Option<Writer>,
}

impl Events {
    /// Opens the target, if there is one; a FIFO as soon as it has a reader.
    /// Cancel safety: no event is written; a file may have been created. A thread goes on waiting for the
    /// reader until this process ends.
    pub(crate) async fn open(
        target: Option<EventsTarget>,
        console: &Console,
    ) -> Result<Self, CommandFailure> {
        let Some(target) = target else {
            return Ok(Self::default());
        };
        let (done, opened) = oneshot::channel();
        let console = console.clone();
        // Not one of the runtime, which waits for its threads when it ends.
        std::thread::Builder::new()
            .name("lockctl-open".to_owned())
            .spawn(move || drop(done.send(Self::open_blocking(&target, console))))
            .map_err(CommandFailure::internal("cannot start a thread"))?;
        opened
            .await
            .expect("BUG: the thread sends what it has opened")
    }

    fn open_blocking(target: &EventsTarget, console: Console) -> Result<Self, CommandFailure> {
        let (file, name) = match target {
            EventsTarget::Descriptor(number) => (inherited(*number), format!("fd:{number}")),
            EventsTarget::File(path) => {
                let mut options = OpenOptions::new();
                let file = options.append(true).create(true).mode(0o600).open(path);
                (file.map(EventsFile), escaped(&path_text(path)))
            }
        };
        let told = name.clone();
        let failed = move |e: io::Error| {
            // A reader that has gone wants no more.
            if e.kind() != io::ErrorKind::BrokenPipe {
                console.warn(format_args!("no more events are written to {told}: {e}"));
            }
        };
        let writer = file
            .and_then(|file| {
                let missing = |lines| event_line("missing", json!({ "lines": lines }));
                Writer::start("lockctl-events", file, missing, failed)
            })
            .map_err(|e| {
                let message = format!("cannot write events to {name}");
                CommandFailure::new(Exit::Usage, message).with_cause(&e)
            })?;
        Ok(Self { out: Some(writer) })
    }

    /// Writes an event with its fields.
    pub(crate) fn tell(&self, event: &str, fields: Value) {
        let Some(out) = &self.out else { return };
        out.line(event_line(event, fields));
    }

    /// Writes that a lock was lost, if the error says so.
    pub(crate) fn tell_loss(&self, error: &Error) {
        let Some(reason) = error.lost_reason() else {
            return;
        };
        let key = error.key().map(LockKey::as_str);
        let keys: Vec<_> = key.into_iter().collect();
        let fields = json!({ "keys": keys, "reason": reason.as_str() });
        self.tell("lost", fields);
    }

    /// Waits a moment until all is written.
    pub(crate) fn flush(&self) {
        if let Some(out) = &self.out {
            out.flush(Duration::from_millis(500));
        }
    }
}

/// An inherited descriptor that is open for writing.
fn inherited(number: u32) -> io::Result<EventsFile> {
    let file = match number {
        1 => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        2 => File::from(io::stderr().as_fd().try_clone_to_owned()?),
        _ => other_inherited(number)?,
    };
    match fcntl_getfl(&file)?.intersects(OFlags::WRONLY | OFlags::RDWR) {
        true => Ok(EventsFile(file)),
        false => Err(io::Error::other("it is not open for writing")),
    }
}

/// Duplicates a descriptor. One that is opened again has a position of its own in a file, and needs rights that
/// this process may not have, such as those on a pipe of another user.
#[cfg(target_os = "linux")]
fn other_inherited(number: u32) -> io::Result<File> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    if is_own(number) {
        return Err(Errno::BADF.into());
    }
    let number = i32::try_from(number).map_err(|_| Errno::BADF)?;
    let duplicated = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|this| pidfd_getfd(this, number, PidfdGetfdFlags::empty()));
    match duplicated {
        Ok(open) => Ok(open.into()),
        // An old kernel, or a sandbox that forbids it.
        Err(_) => reopened(number),
    }
}

/// Whether this process has opened a descriptor itself: those are closed on exec, and so none is inherited. False
/// where the system does not say.
#[cfg(target_os = "linux")]
fn is_own(number: u32) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| OFlags::from_bits_retain(flags).contains(OFlags::CLOEXEC))
}

/// Elsewhere, to open a descriptor again duplicates it.
#[cfg(not(target_os = "linux"))]
fn other_inherited(number: u32) -> io::Result<File> {
    reopened(number)
}

fn reopened(number: impl fmt::Display) -> io::Result<File> {
    let path = format!("/dev/fd/{number}");
    OpenOptions::new().append(true).open(path)
}

/// Waits for a descriptor that does not block, as the program that it comes from has set it.
struct EventsFile(File);

impl Write for EventsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn event_line(event: &str, fields: Value) -> String {
    let now = SystemTime::now();
    let mut object = Map::new();
    object.insert("event".to_owned(), event.into());
    object.insert("time".to_owned(), timestamp(now).into());
    object.insert("unix_ms".to_owned(), unix_ms(now).into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    json_line(&Value::Object(object))
}

/// Forwards the library's events of held locks.
#[derive(Debug)]
pub(crate) struct RenewalEvents {
    pub(crate) progress: WaitProgress,
    pub(crate) events: Events,
    pub(crate) console: Console,
}

impl Observer for RenewalEvents {
    fn event(&self, event: &Event<'_>) {
        self.progress.event(event);
        let key = event.key.as_str();
        match event.kind {
            EventKind::Renewed { slack, .. } => {
                self.events
                    .tell("renewed", json!({ "key": key, "valid_ms": millis(slack) }));
            }
            EventKind::RenewalFailed { error, .. } => {
                let (key_shown, message) = (Escaped(key), Escaped(error.message()));
                self.console
                    .warn(format_args!("{key_shown} was not renewed: {message}"));
                let fields = json!({ "key": key, "error": error.message() });
                self.events.tell("renewal_failed", fields);
            }
            _ => {}
        }
    }
}
