//! The faults, one type each.

mod admin;
mod clients;
mod clocks;
mod network;
pub(crate) mod replies;
mod servers;

use std::fmt;

use lock_testkit::sim::Rng;

use crate::backend::{Backend, Mode};
use crate::world::World;

/// A fault that strikes once and is healed later.
pub(crate) trait Fault {
    /// Strikes, and says what it met.
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> std::io::Result<String>;

    /// Undoes what lasts.
    fn heal(&mut self, world: &mut World) -> std::io::Result<()>;
}

/// One line of the list of faults.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) fits: fn(Backend) -> bool,
    /// For how long at least and at most it lasts.
    pub(crate) millis: (u64, u64),
    pub(crate) make: fn() -> Box<dyn Fault>,
    /// How often it comes for each time that an ordinary fault does.
    pub(crate) weight: usize,
    /// One of these always comes with it; without any, every fault may, and none has to.
    pub(crate) together_with: &'static [&'static str],
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Every fault of docs/guarantees.md that can be injected into running servers and clients.
pub(crate) static ALL: &[Kind] = &[
    kind::<admin::Break>("admin-break", |_| true, (200, 1_000)),
    kind::<clocks::Clients>("client-clock", |_| true, (2_000, 6_000)),
    kind::<clients::Container>("client-container", |_| true, (4_000, 9_000)),
    kind::<clients::Freeze>("client-freeze", |_| true, (500, 6_000)),
    kind::<clients::Kill>("client-kill", |_| true, (200, 1_000)),
    kind::<servers::FullDisk>("disk-full", |_| true, (1_000, 3_000)),
    kind::<servers::FailOver>(
        "failover",
        |backend| matches!(backend, Backend::Cluster | Backend::Sentinel),
        (500, 3_000),
    ),
    kind::<network::HalfOpen>("half-open", has_servers, (1_000, 6_000)),
    kind::<network::Partition>("partition", has_servers, (1_000, 6_000)),
    kind::<network::Peers>(
        "peers-reset",
        |backend| backend == Backend::ZooKeeper,
        (6_000, 11_000),
    )
    .often(8),
    kind::<network::PowerLoss>("power-loss", has_servers, (200, 3_000)).often(3),
    kind::<replies::Late>("replies-late", replies::has_proxies, (1_000, 5_000)),
    kind::<replies::Lost>("replies-lost", replies::has_proxies, (500, 4_000)),
    kind::<network::Reset>("reset", has_servers, (200, 3_000)),
    kind::<clocks::Servers>("server-clock", has_servers, (500, 3_000)),
    kind::<clocks::Drift>("server-drift", has_servers, (3_000, 8_000)),
    kind::<servers::Forget>(
        "server-forget",
        |backend| backend == Backend::Redis,
        (500, 2_000),
    ),
    kind::<servers::Freeze>("server-freeze", has_servers, (500, 6_000)),
    kind::<servers::Kill>("server-kill", has_servers, (100, 5_000)),
    kind::<clocks::Reboot>(
        "server-reboot",
        |backend| backend == Backend::Quorum,
        (1_000, 4_000),
    )
    .often(2),
    kind::<replies::Twice>(
        "requests-twice",
        |backend| matches!(backend, Backend::Redis | Backend::Quorum),
        (1_000, 5_000),
    ),
    Kind {
        // What the clients still believe shows when they are stopped.
        together_with: &["client-freeze"],
        weight: 3,
        ..kind::<servers::Settings>(
            "server-settings",
            |backend| backend == Backend::ZooKeeper,
            (8_000, 14_000),
        )
    },
    kind::<admin::EndSessions>("session-end", has_sessions, (200, 1_000)),
    kind::<network::Split>("split", has_peers, (3_000, 9_000)).often(3),
];

impl Kind {
    const fn often(mut self, weight: usize) -> Self {
        self.weight = weight;
        self
    }
}

/// Those that a backend can meet.
pub(crate) fn fitting(backend: Backend) -> impl Iterator<Item = &'static Kind> {
    ALL.iter().filter(move |kind| (kind.fits)(backend))
}

const fn kind<F: Fault + Default + 'static>(
    name: &'static str,
    fits: fn(Backend) -> bool,
    millis: (u64, u64),
) -> Kind {
    Kind {
        name,
        fits,
        millis,
        make: || Box::<F>::default(),
        together_with: &[],
        weight: 1,
    }
}

fn has_servers(backend: Backend) -> bool {
    backend != Backend::Sqlite
}

fn has_peers(backend: Backend) -> bool {
    matches!(
        backend,
        Backend::Cluster | Backend::Quorum | Backend::Sentinel | Backend::ZooKeeper
    )
}

fn has_sessions(backend: Backend) -> bool {
    matches!(
        backend,
        Backend::MariaDb(Mode::Advisory | Mode::Row)
            | Backend::Postgres(Mode::Advisory | Mode::Row)
    )
}
