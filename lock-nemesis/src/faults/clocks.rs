//! Wall clocks that jump, and that are fast or slow.

use std::io;

use lock_testkit::sim::Rng;

use super::injection::{Injected, lasting, passing};
use crate::backend::BackendKind;
use crate::world::World;

/// The wall clocks of clients jump by up to an hour, to and fro.
pub(super) fn clients(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let (mut met, mut shifted) = (Vec::new(), Vec::new());
    for client in 0..world.clients.count() {
        if rng.chance(500) {
            let seconds = signed(rng, 3_600);
            world.clients.clock(client).set_offset(seconds);
            met.push(format!("client {client} {seconds:+} s"));
            shifted.push(client);
        }
    }
    lasting(met.join(", "), move |world| {
        for client in shifted {
            world.clients.clock(client).set_offset(0);
        }
        Ok(())
    })
}

/// The wall clock of the servers jumps forward and stays there; that of one of them alone where a
/// majority decides.
pub(super) fn servers(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let seconds = 1 + i64::try_from(rng.below(20)).unwrap_or(0);
    let servers = world.fleet.servers();
    // Backwards, or behind the clock of another, tokens would depend on what a server has kept.
    world.clock_offset += seconds;
    let place = rng.index(servers.len());
    let all = !matches!(world.backend, BackendKind::Quorum | BackendKind::ZooKeeper);
    let (jumping, which) = if all {
        (&servers[..], "all servers".to_owned())
    } else {
        (&servers[place..=place], format!("server {place}"))
    };
    for server in jumping {
        server.set_clock_offset(world.clock_offset);
    }
    passing(format!("{which} at {:+} s", world.clock_offset))
}

/// The wall clocks of the servers run 5 % too fast or too slow, which the margin of a lease covers.
pub(super) fn drift(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    fn set(world: &World, drift: i64) {
        for server in world.fleet.servers() {
            server.set_clock_drift(drift);
        }
    }
    let drift = if rng.chance(500) { 50_000 } else { -50_000 };
    set(world, drift);
    lasting(format!("all servers {:+} %", drift / 10_000), |world| {
        set(world, 0);
        Ok(())
    })
}

/// Some servers reboot without their data, and their clocks jump forward after that, as they do when
/// the time of the network reaches them.
pub(super) fn reboot(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let servers = world.fleet.servers();
    let (first, count) = (rng.index(servers.len()), 1 + rng.index(servers.len()));
    let places: Vec<_> = (first..first + count)
        .map(|at| at % servers.len())
        .collect();
    world.clock_offset += 60;
    for place in &places {
        world.fleet.restart_empty(*place)?;
        servers[*place].set_clock_offset(world.clock_offset);
    }
    passing(format!("servers {places:?}, at {:+} s", world.clock_offset))
}

fn signed(rng: &mut Rng, limit: u64) -> i64 {
    let size = i64::try_from(rng.below(limit)).unwrap_or(0);
    if rng.chance(500) { size } else { -size }
}
