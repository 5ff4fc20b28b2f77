//! Lines that are written by a thread of their own.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Hands lines to a thread that writes them.
///
/// The reader of the other end may stop; then the thread blocks, but neither the renewals nor the
/// supervision of the command.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    jobs: Sender<WriterJob>,
}

#[derive(Debug)]
enum WriterJob {
    Flush(Sender<()>),
    Line(String),
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(name: &str, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (jobs, to_do) = channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(out, &to_do))?;
        Ok(Self { jobs })
    }

    /// Queues a line, which brings its own line break.
    pub(crate) fn line(&self, line: String) {
        // The thread is gone if the other end is.
        drop(self.jobs.send(WriterJob::Line(line)));
    }

    /// Waits until everything is written, or nothing can be, or the time is over.
    pub(crate) fn flush(&self, within: Duration) {
        let (done, written) = channel();
        if self.jobs.send(WriterJob::Flush(done)).is_ok() {
            written.recv_timeout(within).ok();
        }
    }
}

fn work(mut out: impl Write, to_do: &Receiver<WriterJob>) {
    for job in to_do {
        let written = match job {
            WriterJob::Flush(done) => out.flush().map(|()| done.send(()).unwrap_or_default()),
            WriterJob::Line(line) => out.write_all(line.as_bytes()),
        };
        if written.is_err() {
            return;
        }
    }
}
