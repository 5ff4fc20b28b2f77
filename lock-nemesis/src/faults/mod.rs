//! The faults, one function each.

mod admin;
mod clients;
mod clocks;
mod injection;
mod network;
mod replies;
mod servers;

use std::io;

use lock_testkit::sim::Rng;

pub(crate) use self::injection::{Heal, Injected};
use crate::backend::BackendKind;
use crate::fleet::has_proxies;
use crate::world::World;

/// One line of the list of faults.
pub(crate) struct FaultKind {
    pub(crate) name: &'static str,
    pub(crate) fits: fn(BackendKind) -> bool,
    /// For how long at least and at most it lasts.
    pub(crate) millis: (u64, u64),
    pub(crate) inject: fn(&mut World, &mut Rng) -> io::Result<Injected>,
    /// How often it comes for each time that an ordinary fault does.
    pub(crate) weight: usize,
    /// One of these always comes with it; without any, every fault may, and none has to.
    pub(crate) together_with: &'static [&'static str],
}

/// Every fault of docs/guarantees.md that can be injected into running servers and clients.
pub(crate) static ALL: &[FaultKind] = &[
    kind("admin-break", admin::break_lock, all, (200, 1_000)),
    kind("client-clock", clocks::clients, all, (2_000, 6_000)),
    kind("client-container", clients::container, all, (4_000, 9_000)),
    kind("client-freeze", clients::freeze, all, (500, 6_000)),
    kind("client-kill", clients::kill, all, (200, 1_000)),
    kind("disk-full", servers::full_disk, all, (1_000, 3_000)),
    kind("failover", servers::fail_over, has_replicas, (500, 3_000)),
    kind("half-open", network::half_open, has_servers, (1_000, 6_000)),
    kind("partition", network::partition, has_servers, (1_000, 6_000)),
    kind("peers-reset", network::peers, elects, (6_000, 11_000)).often(8),
    kind("power-loss", network::power_loss, has_servers, (200, 3_000)).often(3),
    kind("replies-late", replies::late, has_proxies, (1_000, 5_000)),
    kind("replies-lost", replies::lost, has_proxies, (500, 4_000)),
    kind("reset", network::reset, has_servers, (200, 3_000)),
    kind(
        "server-clock",
        clocks::servers,
        BackendKind::has_clocks,
        (500, 3_000),
    ),
    kind(
        "server-drift",
        clocks::drift,
        BackendKind::has_clocks,
        (3_000, 8_000),
    ),
    kind("server-forget", servers::forget, redis, (500, 2_000)),
    kind("server-freeze", servers::freeze, may_freeze, (500, 6_000)),
    kind("server-kill", servers::kill, has_servers, (100, 5_000)),
    kind("server-reboot", clocks::reboot, quorum, (1_000, 4_000)).often(2),
    kind(
        "requests-twice",
        replies::twice,
        |backend| redis(backend) || quorum(backend),
        (1_000, 5_000),
    ),
    FaultKind {
        // What the clients still believe shows when they are stopped.
        together_with: &["client-freeze"],
        ..kind(
            "server-settings",
            servers::settings,
            zookeeper,
            (8_000, 14_000),
        )
        .often(3)
    },
    kind(
        "session-end",
        admin::end_sessions,
        BackendKind::has_sessions,
        (200, 1_000),
    ),
    kind("split", network::split, has_peers, (3_000, 9_000)).often(3),
];

impl FaultKind {
    const fn often(mut self, weight: usize) -> Self {
        self.weight = weight;
        self
    }
}

/// Those that a backend can meet.
pub(crate) fn fitting(backend: BackendKind) -> impl Iterator<Item = &'static FaultKind> {
    ALL.iter().filter(move |kind| (kind.fits)(backend))
}

const fn kind(
    name: &'static str,
    inject: fn(&mut World, &mut Rng) -> io::Result<Injected>,
    fits: fn(BackendKind) -> bool,
    millis: (u64, u64),
) -> FaultKind {
    FaultKind {
        name,
        fits,
        millis,
        inject,
        together_with: &[],
        weight: 1,
    }
}

fn all(_: BackendKind) -> bool {
    true
}

fn redis(backend: BackendKind) -> bool {
    backend == BackendKind::Redis
}

fn quorum(backend: BackendKind) -> bool {
    backend == BackendKind::Quorum
}

fn zookeeper(backend: BackendKind) -> bool {
    backend == BackendKind::ZooKeeper
}

/// Whether its servers elect a leader among them.
fn elects(backend: BackendKind) -> bool {
    matches!(backend, BackendKind::Etcd | BackendKind::ZooKeeper)
}

fn has_replicas(backend: BackendKind) -> bool {
    matches!(backend, BackendKind::Cluster | BackendKind::Sentinel)
}

fn has_servers(backend: BackendKind) -> bool {
    backend != BackendKind::Sqlite
}

/// In etcd before 3.4.31, as in Debian 12, a replaced leader that goes on revokes leases that the new one
/// has renewed. See docs/backends/etcd.md.
fn may_freeze(backend: BackendKind) -> bool {
    has_servers(backend) && backend != BackendKind::Etcd
}

fn has_peers(backend: BackendKind) -> bool {
    matches!(
        backend,
        BackendKind::Cluster
            | BackendKind::Etcd
            | BackendKind::Quorum
            | BackendKind::Sentinel
            | BackendKind::ZooKeeper
    )
}
