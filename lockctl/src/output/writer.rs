//! Lines that are written by a thread of their own.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Hands lines to a thread that writes them.
///
/// The reader of the other end may stop; then the thread blocks, but neither the renewals nor the
/// supervision of the command. Lines beyond [`MAX_QUEUED`] are dropped, and a line says how many.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    jobs: Sender<WriterJob>,
    queued: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    missing: fn(usize) -> String,
}

#[derive(Debug)]
enum WriterJob {
    Flush(Sender<()>),
    Line(String),
}

/// How many lines wait for their reader at most: some megabytes.
const MAX_QUEUED: usize = 10_000;

impl Writer {
    /// Starts the thread. `missing` is the line that takes the place of so many dropped ones.
    pub(crate) fn start(
        name: &str,
        out: impl Write + Send + 'static,
        missing: fn(usize) -> String,
    ) -> io::Result<Self> {
        let (jobs, to_do) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&queued);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(out, &to_do, &written))?;
        Ok(Self {
            jobs,
            queued,
            dropped: Arc::default(),
            missing,
        })
    }

    /// Queues a line, which brings its own line break.
    pub(crate) fn line(&self, line: String) {
        if self.queued.load(Ordering::Relaxed) >= MAX_QUEUED {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.tell_missing();
        self.send(line);
    }

    /// Waits until everything is written, or nothing can be, or the time is over.
    pub(crate) fn flush(&self, within: Duration) {
        self.tell_missing();
        let (done, written) = channel();
        if self.jobs.send(WriterJob::Flush(done)).is_ok() {
            written.recv_timeout(within).ok();
        }
    }

    fn tell_missing(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.send((self.missing)(dropped));
        }
    }

    fn send(&self, line: String) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // The thread is gone if the other end is.
        drop(self.jobs.send(WriterJob::Line(line)));
    }
}

fn work(mut out: impl Write, to_do: &Receiver<WriterJob>, queued: &AtomicUsize) {
    for job in to_do {
        let written = match job {
            WriterJob::Flush(done) => out.flush().map(|()| done.send(()).unwrap_or_default()),
            WriterJob::Line(line) => {
                let written = out.write_all(line.as_bytes());
                queued.fetch_sub(1, Ordering::Relaxed);
                written
            }
        };
        if written.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let (reader, pipe) = io::pipe().unwrap();
        let writer = Writer::start("writer", pipe, |dropped| format!("{dropped} missing\n"));
        let writer = writer.unwrap();
        let line = "x".repeat(100);
        let more = 5_000;
        // A pipe holds some hundreds of lines.
        for _ in 0..MAX_QUEUED + more {
            writer.line(format!("{line}\n"));
        }
        assert!(writer.queued.load(Ordering::Relaxed) <= MAX_QUEUED);
        let dropped = writer.dropped.load(Ordering::Relaxed);
        assert!((1..=more).contains(&dropped), "{dropped} lines are dropped");
        let all =
            std::thread::spawn(|| BufReader::new(reader).lines().map(Result::unwrap).collect());
        writer.flush(Duration::from_secs(20));
        writer.line("last\n".to_owned());
        drop(writer);
        let mut all: Vec<String> = all.join().unwrap();
        assert_eq!(all.pop().unwrap(), "last");
        assert_eq!(all.pop().unwrap(), format!("{dropped} missing"));
        assert_eq!(all.len(), MAX_QUEUED + more - dropped);
        assert!(all.iter().all(|found| *found == line));
    }
}
