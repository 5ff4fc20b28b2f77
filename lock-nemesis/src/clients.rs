//! The client processes of a run, and what happened in those that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_testkit::clock::ShiftedClock;
use lock_testkit::history::{HistoryEvent, What};
use lock_testkit::network::NetworkHost;
use lock_testkit::taker::TakerProcess;
use polylock_core::LockKey;
use polylock_core::engine::{BootClock, Clock};

/// Everything that starts a client.
#[derive(Debug)]
pub(crate) struct Clients {
    program: PathBuf,
    arguments: Vec<String>,
    mutant: Option<String>,
    seed: u64,
    started: u64,
    running: Vec<ClientProcess>,
    past: Vec<HistoryEvent>,
}

/// One client process and the clock that it stamps its events with.
#[derive(Debug)]
struct ClientProcess {
    process: TakerProcess,
    /// How far its boot clock is ahead of that of the nemesis.
    boot_offset: Duration,
    url: String,
    host: NetworkHost,
    clock: ShiftedClock,
}

/// What surrounds a client process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// A program and its arguments that become the client.
    pub(crate) wrapper: Vec<String>,
    /// How far they put the boot clock forward.
    pub(crate) boot_offset: Duration,
}

impl Clients {
    pub(crate) fn new(
        program: PathBuf,
        registers: &Path,
        keys: &[LockKey],
        seed: u64,
        mutant: Option<String>,
    ) -> Self {
        let mut arguments = vec!["--registers".to_owned(), registers.display().to_string()];
        arguments.extend(keys.iter().map(|key| key.as_str().to_owned()));
        Self {
            program,
            arguments,
            mutant,
            seed,
            started: 0,
            running: Vec::new(),
            past: Vec::new(),
        }
    }

    /// Adds a client that reaches the lock service at `url` from a host.
    pub(crate) fn add(&mut self, url: String, host: NetworkHost) -> io::Result<()> {
        let clock = ShiftedClock::new();
        let process = self.spawn(&url, &host, &clock, &Surroundings::default())?;
        self.running.push(ClientProcess {
            process,
            boot_offset: Duration::ZERO,
            url,
            host,
            clock,
        });
        Ok(())
    }

    pub(crate) fn hosts(&self) -> Vec<NetworkHost> {
        self.running
            .iter()
            .map(|client| client.host.clone())
            .collect()
    }

    pub(crate) fn clock(&self, client: usize) -> &ShiftedClock {
        &self.running[client].clock
    }

    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn stop(&self, client: usize) {
        // One that has ended by itself is found at the end of the run.
        drop(self.running[client].process.stop());
    }

    pub(crate) fn resume(&self, client: usize) {
        drop(self.running[client].process.resume());
    }

    /// Kills a client and starts another in its place.
    pub(crate) fn replace(&mut self, client: usize, surroundings: &Surroundings) -> io::Result<()> {
        let old = &mut self.running[client];
        let killed_at = now();
        old.process.kill()?;
        let (url, host, clock) = (old.url.clone(), old.host.clone(), old.clock.clone());
        let events = old.events();
        self.past.extend(released_by_death(events, killed_at));
        let process = self.spawn(&url, &host, &clock, surroundings)?;
        let old = &mut self.running[client];
        old.process = process;
        old.boot_offset = surroundings.boot_offset;
        Ok(())
    }

    /// Ends all clients and returns their events.
    pub(crate) fn finish(mut self) -> Vec<HistoryEvent> {
        let mut events = std::mem::take(&mut self.past);
        for client in &mut self.running {
            let killed_at = now();
            drop(client.process.resume());
            drop(client.process.kill());
            events.extend(released_by_death(client.events(), killed_at));
        }
        events
    }

    pub(crate) fn events(&self) -> Vec<HistoryEvent> {
        let running = self.running.iter().flat_map(ClientProcess::events);
        self.past.iter().cloned().chain(running).collect()
    }

    fn spawn(
        &mut self,
        url: &str,
        host: &NetworkHost,
        clock: &ShiftedClock,
        surroundings: &Surroundings,
    ) -> io::Result<TakerProcess> {
        self.started += 1;
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.started);
        // The system kills it with the thread that started it, however that ends.
        let mut command = host.command("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .args(&surroundings.wrapper)
            .arg(&self.program)
            .args(["client", "--url", url, "--seed", &seed.to_string()])
            .args(&self.arguments);
        clock.apply(&mut command);
        if let Some(mutant) = &self.mutant {
            command.env("POLYLOCK_MUTANT", mutant);
        }
        TakerProcess::spawn(command)
    }
}

impl ClientProcess {
    /// By the clock of the nemesis.
    fn events(&self) -> Vec<HistoryEvent> {
        let offset = u64::try_from(self.boot_offset.as_nanos()).unwrap_or(u64::MAX);
        let earlier = |time: &mut u64| *time = time.saturating_sub(offset);
        let mut events = self.process.events();
        for event in &mut events {
            earlier(&mut event.at);
            match &mut event.what {
                What::Granted { until, .. } | What::Held { until } => {
                    until.as_mut().map(earlier);
                }
                _ => {}
            }
        }
        events
    }
}

/// A process that is killed holds nothing from then on, whatever its deadlines were.
fn released_by_death(mut events: Vec<HistoryEvent>, killed_at: u64) -> Vec<HistoryEvent> {
    let mut open = BTreeSet::new();
    let mut keys = BTreeMap::new();
    for event in &events {
        keys.insert(event.attempt, event.key.clone());
        match event.what {
            What::Granted { .. } => drop(open.insert(event.attempt)),
            What::Lost { .. } | What::Releasing { .. } => drop(open.remove(&event.attempt)),
            _ => {}
        }
    }
    for attempt in open {
        let mut end = HistoryEvent::new(
            killed_at,
            keys[&attempt].clone(),
            attempt,
            What::Releasing { held: true },
        );
        end.seq = u64::MAX;
        events.push(end);
    }
    events
}

/// The clock of all events.
pub(crate) fn now() -> u64 {
    BootClock::default().now().as_nanos()
}
