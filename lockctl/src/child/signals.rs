//! Signals that `lockctl` gets.

use std::fs;
use std::future::{pending, ready};
use std::task::Poll;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::output::CommandFailure;

/// The signals that are passed on to the command, and that end the waiting if they end processes.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    ending: &'static [Signal],
    children: Stream,
    _file_size: Option<Stream>,
}

const HANDLED: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
];

/// Signals that ask the process to end, HUP as the last of them.
const TERMINATION_SIGNALS: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::QUIT, Signal::HUP];

impl Signals {
    /// Catches the signals from here on, except those that the caller wants to be ignored, as
    /// nohup(1) does with HUP: they stay ignored, also by the command.
    pub(crate) fn catch() -> Result<Self, CommandFailure> {
        let ignored = ignored_signals();
        let wanted = HANDLED
            .into_iter()
            .filter(|signal| !is_in(ignored, *signal));
        let caught = wanted.map(|wanted| Ok((wanted, listen(wanted)?)));
        Ok(Self {
            streams: caught.collect::<Result<_, CommandFailure>>()?,
            ending: &TERMINATION_SIGNALS,
            // An ignored CHLD is inherited, and the kernel would reap the command unseen.
            children: listen(Signal::CHILD)?,
            // A file that must not grow is an error of the write, and no end of lockctl and its command. The
            // command has the default action.
            _file_size: (!is_in(ignored, Signal::XFSZ))
                .then(|| listen(Signal::XFSZ))
                .transpose()?,
        })
    }

    /// Takes HUP for no end, as a service does that reads its configuration again.
    pub(crate) fn without_hangup(self) -> Self {
        let ending = &TERMINATION_SIGNALS[..3];
        Self { ending, ..self }
    }

    /// Catches Ctrl-Z (TSTP) from here on, unless it is ignored: for a command that has a process group of
    /// its own and would go on alone.
    pub(super) fn catch_suspensions(&mut self) -> Result<(), CommandFailure> {
        let mut caught = self.streams.iter().map(|(signal, _)| *signal);
        if !caught.any(|signal| signal == Signal::TSTP) && !is_in(ignored_signals(), Signal::TSTP) {
            self.streams.push((Signal::TSTP, listen(Signal::TSTP)?));
        }
        Ok(())
    }

    /// Whether the signal asks the process to end.
    pub(super) fn is_ending(&self, signal: Signal) -> bool {
        self.ending.contains(&signal)
    }

    /// The next signal, CHILD among them.
    /// Cancel safety: no signal is lost; several of one kind may count as one.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            self.children.poll_recv(cx).map(|_| Signal::CHILD)
        })
        .await
    }

    /// The next signal that asks the process to end. While no command runs, a caught Ctrl-Z stops this
    /// process alone.
    /// Cancel safety: as for [`next`](Signals::next).
    pub(crate) async fn next_that_ends(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal == Signal::TSTP {
                kill_process(getpid(), Signal::STOP).ok();
            }
            if self.is_ending(signal) {
                return signal;
            }
        }
    }

    /// The signal that asks the process to end, if one has come already; it counts as seen.
    /// Cancel safety: as for [`next`](Signals::next).
    pub(super) async fn ending_now(&mut self) -> Option<Signal> {
        tokio::select! {
            biased;
            signal = self.next_that_ends() => Some(signal),
            () = ready(()) => None,
        }
    }
}

/// The signal that asks this process to end, if it is process 1, as in a container: for that one the kernel has
/// no default action. All others end by it.
/// Cancel safety: a signal that comes later is ignored.
pub(crate) async fn end_of_process_1() -> Result<Signal, CommandFailure> {
    if getpid() != Pid::INIT {
        return pending().await;
    }
    Ok(Signals::catch()?.next_that_ends().await)
}

fn listen(wanted: Signal) -> Result<Stream, CommandFailure> {
    let stream = signal(SignalKind::from_raw(wanted.as_raw()));
    stream.map_err(CommandFailure::internal("cannot catch signals"))
}

/// The mask of ignored signals; none where the system does not tell.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn is_in(mask: u64, signal: Signal) -> bool {
    mask & (1 << (signal.as_raw() - 1)) != 0
}

/// The usual name without `SIG`, else the number.
pub(crate) fn name(signal: Signal) -> String {
    let known = NAMES.iter().find(|(_, known)| *known == signal);
    known.map_or_else(|| signal.as_raw().to_string(), |(name, _)| (*name).into())
}

/// Signals that can stop a command, by their names.
pub(crate) const NAMES: [(&str, Signal); 7] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("KILL", Signal::KILL),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];
