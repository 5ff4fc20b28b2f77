//! Wall clocks that jump, and that are fast or slow.

use std::io;

use lock_testkit::sim::Rng;

use super::Fault;
use crate::backend::Backend;
use crate::world::World;

/// The wall clocks of clients jump by up to an hour, to and fro.
#[derive(Debug, Default)]
pub(crate) struct Clients(Vec<usize>);

impl Fault for Clients {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let mut met = Vec::new();
        for client in 0..world.clients.count() {
            if rng.chance(500) {
                let seconds = signed(rng, 3_600);
                world.clients.clock(client).set_offset(seconds);
                met.push(format!("client {client} {seconds:+} s"));
                self.0.push(client);
            }
        }
        Ok(met.join(", "))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        for client in &self.0 {
            world.clients.clock(*client).set_offset(0);
        }
        Ok(())
    }
}

/// The wall clock of the servers jumps forward and stays there; that of one of them alone where a
/// majority decides.
#[derive(Debug, Default)]
pub(crate) struct Servers;

impl Fault for Servers {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let seconds = 1 + i64::try_from(rng.below(20)).unwrap_or(0);
        let servers = world.fleet.servers();
        // Backwards, or behind the clock of another, tokens would depend on what a server has kept.
        world.clock_offset += seconds;
        let place = rng.index(servers.len());
        let all = !matches!(world.backend, Backend::Quorum | Backend::ZooKeeper);
        for (_, server) in servers
            .iter()
            .enumerate()
            .filter(|(at, _)| all || *at == place)
        {
            server.set_clock_offset(world.clock_offset);
        }
        let which = if all {
            "all servers".to_owned()
        } else {
            format!("server {place}")
        };
        Ok(format!("{which} at {:+} s", world.clock_offset))
    }

    fn heal(&mut self, _: &mut World) -> io::Result<()> {
        Ok(())
    }
}

/// The wall clocks of the servers run 5 % too fast or too slow, which the margin of a lease covers.
#[derive(Debug, Default)]
pub(crate) struct Drift;

impl Fault for Drift {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let drift = if rng.chance(500) { 50_000 } else { -50_000 };
        for server in world.fleet.servers() {
            server.set_clock_drift(drift);
        }
        Ok(format!("all servers {:+} %", drift / 10_000))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        for server in world.fleet.servers() {
            server.set_clock_drift(0);
        }
        Ok(())
    }
}

/// Some servers reboot without their data, and their clocks jump forward after that, as they do when
/// the time of the network reaches them.
#[derive(Debug, Default)]
pub(crate) struct Reboot;

impl Fault for Reboot {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
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
        Ok(format!("servers {places:?}, at {:+} s", world.clock_offset))
    }

    fn heal(&mut self, _: &mut World) -> io::Result<()> {
        Ok(())
    }
}

fn signed(rng: &mut Rng, limit: u64) -> i64 {
    let size = i64::try_from(rng.below(limit)).unwrap_or(0);
    if rng.chance(500) { size } else { -size }
}
