//! One run: servers, clients, faults in their order, and the judgment.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::history::{HistoryEvent, Recorder};
use lock_testkit::network::Network;
use lock_testkit::sim::Rng;
use polylock_core::LockKey;

use crate::backend::BackendKind;
use crate::candidate::ELECTION;
use crate::clients::{Clients, now};
use crate::faults::{Heal, Injected};
use crate::fleet::Fleet;
use crate::judge::{self, Struck};
use crate::schedule::{self, PlannedFault};
use crate::world::World;
use crate::{register, report};

/// How to run the nemesis against one backend.
#[derive(Clone, Debug)]
pub(crate) struct NemesisRun {
    pub(crate) backend: BackendKind,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) mutant: Option<String>,
    pub(crate) only: Vec<String>,
    /// The binary of the nemesis, which the clients are processes of.
    pub(crate) program: PathBuf,
}

impl NemesisRun {
    /// Runs, and returns the report and the number of violations.
    pub(crate) fn run(self) -> io::Result<(String, usize)> {
        let dir = tempfile::Builder::new().prefix("polylock-").tempdir()?;
        let names = (1..=LOCKS).map(|n| format!("key-{n}"));
        let names = names.chain([ELECTION.to_owned()]);
        let keys = names.map(LockKey::new).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(io::Error::other)?;
        let recorder = Recorder::new();
        let socket = dir.path().join("registers");
        register::serve(&socket, &keys, &recorder)?;
        let network = Network::new()?;
        let fleet = Fleet::start(self.backend, &network)?;
        let mutant = self.mutant.clone();
        let locks = &keys[..LOCKS];
        let mut clients = Clients::new(self.program.clone(), &socket, locks, self.seed, mutant);
        let (proxies, detour) = fleet.proxies(self.backend, &network.host("proxies"));
        for client in 0..CLIENTS {
            let servers = if client < BEHIND_PROXIES {
                &detour
            } else {
                &fleet.url()
            };
            let url = format!("{servers}{}", self.backend.parameters());
            clients.add(url, network.host(&format!("client-{client}")))?;
        }
        let world = World {
            backend: self.backend,
            clients,
            clock_offset: 0,
            fleet,
            keys: keys.clone(),
            network,
            proxies,
            recorder,
        };
        let began = now();
        let (events, faults) = self.strike(world)?;
        // The run of a mutant ends early.
        let recovered = if self.mutant.is_some() { &[] } else { &*keys };
        let judgment = judge::judge(self.backend, recovered, &events, &faults);
        let violations = judgment.violations.len();
        let text = report::render(self.backend, self.seed, began, &events, &faults, &judgment);
        Ok((text, violations))
    }

    fn strike(&self, mut world: World) -> io::Result<(Vec<HistoryEvent>, Vec<Struck>)> {
        let plan = schedule::plan(self.backend, self.seed, self.length, &self.only);
        let began = Instant::now();
        // A slow fault, such as a start of servers, delays the next one.
        let mut late = Duration::ZERO;
        let mut struck: Vec<Struck> = Vec::new();
        let mut active: Vec<(PlannedFault, usize, Heal)> = Vec::new();
        let mut coming = plan.into_iter().peekable();
        loop {
            active.sort_by_key(|(planned, ..)| planned.heal_at);
            let heals = active.first().map(|(planned, ..)| planned.heal_at);
            let injects = coming.peek().map(|planned| planned.inject_at);
            let Some(next) = heals.into_iter().chain(injects).min() else {
                break;
            };
            if heals.is_none() && next + late > self.length {
                break;
            }
            thread::sleep((began + next + late).saturating_duration_since(Instant::now()));
            if heals == Some(next) {
                let (_, place, heal) = active.remove(0);
                heal(&mut world)?;
                struck[place].healed = Some(now());
                // The run of a mutant only shows whether the mutant is found.
                if self.mutant.is_some() && self.has_violation(&world, &struck) {
                    return Ok((world.finish(), struck));
                }
            } else if let Some(planned) = coming.next() {
                let injected = now();
                let mut rng = Rng::stream(planned.seed, "fault", 0);
                let Injected { met, heal } = (planned.kind.inject)(&mut world, &mut rng)?;
                active.push((planned, struck.len(), heal));
                struck.push(Struck {
                    name: planned.kind.name,
                    met,
                    injected,
                    healed: None,
                });
            }
            late = began.elapsed().saturating_sub(next);
        }
        thread::sleep((began + self.length).saturating_duration_since(Instant::now()));
        wait_for_recovery(&world, struck.iter().filter_map(|fault| fault.healed).max());
        Ok((world.finish(), struck))
    }

    fn has_violation(&self, world: &World, struck: &[Struck]) -> bool {
        let mut events = world.clients.events();
        events.extend(world.recorder.events());
        let judgment = judge::judge(self.backend, &[], &events, struck);
        !judgment.violations.is_empty()
    }
}

/// Waits until each lock has had a holder since the last fault.
fn wait_for_recovery(world: &World, since: Option<u64>) {
    let deadline = Instant::now() + RECOVERY_TIMEOUT;
    let is_sign = |event: &&HistoryEvent| judge::is_sign(event) && Some(event.at) > since;
    while Instant::now() < deadline {
        let events = world.clients.events();
        let keys: std::collections::BTreeSet<_> = events
            .iter()
            .filter(is_sign)
            .map(|event| &event.key)
            .collect();
        if keys.len() > LOCKS {
            break;
        }
        thread::sleep(Duration::from_millis(500));
    }
}

const LOCKS: usize = 3;
const CLIENTS: usize = 6;
const BEHIND_PROXIES: usize = 2;

/// How long locks may stay without a holder after the last fault: leases, session timeouts,
/// elections and what a busy machine adds.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(40);
