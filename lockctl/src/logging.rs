//! Colours, and the log of the library for `-v`.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anstream::ColorChoice;
use tracing_subscriber::EnvFilter;

use crate::args::{Color, GlobalArgs};
use crate::writer::Writer;

/// Sets up what the options ask for.
pub(crate) fn start(args: &GlobalArgs) {
    match args.color {
        Color::Always => ColorChoice::Always.write_global(),
        Color::Auto => {}
        Color::Never => ColorChoice::Never.write_global(),
    }
    let level = match args.verbose {
        0 => return,
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::new(format!(
        "warn,lock_core={level},lock_sql={level},polylock={level}"
    ));
    let coloured = anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(coloured);
    let Ok(writer) = Writer::start("lockctl-log", io::stderr()) else {
        return;
    };
    let writer = LOG.get_or_init(|| Arc::new(writer));
    // A second call would fail, and there is none.
    drop(log.with_writer(|| Log(Arc::clone(writer))).try_init());
}

/// Waits a moment for what was logged to be read.
pub(crate) fn flush() {
    if let Some(writer) = LOG.get() {
        writer.flush(PATIENCE);
    }
}

static LOG: OnceLock<Arc<Writer>> = OnceLock::new();

/// Time for somebody who reads slowly.
const PATIENCE: Duration = Duration::from_millis(500);

/// Hands lines to a thread of their own: the keeper logs as well, and a pipe that nobody reads must
/// not hold up its renewals.
struct Log(Arc<Writer>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
