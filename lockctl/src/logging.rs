//! Colors, and the log of the library for `-v`.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anstream::ColorChoice;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Color, GlobalArgs};
use crate::output::{Console, Writer};

pub(crate) fn start(args: &GlobalArgs) {
    set_color(args.color);
    let level = match args.verbose {
        0 => return,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target(OURS, level);
    let colored = anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never;
    let Ok(writer) = Writer::start("lockctl-log", io::stderr(), Console::missing, drop) else {
        return;
    };
    let writer = LOG.get_or_init(|| Arc::new(writer));
    // A second call would fail, and there is none.
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(colored)
        .with_writer(|| LogWriter(Arc::clone(writer)));
    drop(
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .try_init(),
    );
}

/// Sets when messages of this process are colored.
pub(crate) fn set_color(color: Color) {
    match color {
        Color::Always => ColorChoice::Always.write_global(),
        Color::Auto => {}
        Color::Never => ColorChoice::Never.write_global(),
    }
}

/// Waits a moment for what was logged to be read.
pub(crate) fn flush() {
    if let Some(writer) = LOG.get() {
        writer.flush(FLUSH_TIMEOUT);
    }
}

/// How the targets begin whose level `-v` raises.
const OURS: &str = "polylock";

static LOG: OnceLock<Arc<Writer>> = OnceLock::new();

/// Time for a slow reader.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Hands lines to a thread of their own: the scheduler logs as well, and a pipe without a reader
/// must not delay its renewals.
struct LogWriter(Arc<Writer>);

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
