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
    /// Starts the thread. `missing` is the line that takes the place of so many dropped ones; `failed` is called
    /// when a line cannot be written, and none is written after that.
    pub(crate) fn start(
        name: &str,
        out: impl Write + Send + 'static,
        missing: fn(usize) -> String,
        failed: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, to_do) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&queued);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(out, &to_do, &written).unwrap_or_else(failed))?;
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

    /// Whether every line is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued.load(Ordering::Relaxed) == 0
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

fn work(mut out: impl Write, to_do: &Receiver<WriterJob>, queued: &AtomicUsize) -> io::Result<()> {
    for job in to_do {
        match job {
            WriterJob::Flush(done) => {
                out.flush()?;
                done.send(()).unwrap_or_default();
            }
            WriterJob::Line(line) => {
                let written = out.write_all(line.as_bytes());
                queued.fetch_sub(1, Ordering::Relaxed);
                written?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes no bytes while the test has the lock, like a pipe that is full.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let pipe = Pipe::default();
        let full = pipe.0.lock().unwrap();
        let writer = Writer::start("writer", pipe.clone(), |n| format!("{n} missing\n"), drop);
        let writer = writer.unwrap();
        for _ in 0..MAX_QUEUED + 5 {
            writer.line("a line\n".to_owned());
        }
        assert_eq!(writer.queued.load(Ordering::Relaxed), MAX_QUEUED);
        assert_eq!(writer.dropped.load(Ordering::Relaxed), 5);
        drop(full);
        writer.flush(Duration::from_secs(20));
        writer.line("last\n".to_owned());
        writer.flush(Duration::from_secs(20));
        let written = String::from_utf8(pipe.0.lock().unwrap().clone()).unwrap();
        let lines = "a line\n".repeat(MAX_QUEUED);
        assert!(
            written == format!("{lines}5 missing\nlast\n"),
            "{} bytes are written, which end with {:?}",
            written.len(),
            written.lines().rev().take(3).collect::<Vec<_>>()
        );
    }
}
