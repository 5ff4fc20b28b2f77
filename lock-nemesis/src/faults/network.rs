//! Faults of the network between clients and servers, and between servers.

use std::io;

use lock_testkit::network::Host;
use lock_testkit::sim::Rng;

use super::Fault;
use crate::world::World;

/// Some clients and some servers do not hear of each other, and nobody is told.
#[derive(Debug, Default)]
pub(crate) struct Partition;

impl Fault for Partition {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let (clients, servers) = (
            draw(rng, &world.client_hosts()),
            draw(rng, &world.server_hosts()),
        );
        world.network.partition(&refs(&clients), &refs(&servers));
        Ok(format!("{} and {}", names(&clients), names(&servers)))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.network.heal();
        Ok(())
    }
}

/// All hosts are on one side or on the other: the leader of the servers, one server with it at
/// most, and some clients; and the rest.
#[derive(Debug, Default)]
pub(crate) struct Split;

impl Fault for Split {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let mut one = draw(rng, &world.client_hosts());
        let leader = world
            .fleet
            .leader()
            .unwrap_or_else(|| rng.index(world.server_hosts().len()));
        one.push(world.server_hosts()[leader].clone());
        let mut other = world.client_hosts();
        other.extend(world.server_hosts());
        other.retain(|host| one.iter().all(|own| own.name() != host.name()));
        world.network.partition(&refs(&one), &refs(&other));
        Ok(format!("{} and {}", names(&one), names(&other)))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.network.heal();
        Ok(())
    }
}

/// Packets of one direction are lost between some clients and some servers: connections are half
/// open.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen;

impl Fault for HalfOpen {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let (mut from, mut to) = (
            draw(rng, &world.client_hosts()),
            draw(rng, &world.server_hosts()),
        );
        if rng.chance(500) {
            std::mem::swap(&mut from, &mut to);
        }
        for from in &from {
            to.iter().for_each(|to| world.network.block(from, to));
        }
        Ok(format!("from {} to {}", names(&from), names(&to)))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.network.heal();
        Ok(())
    }
}

/// Connections of a client are reset on one side, while the other hears nothing.
#[derive(Debug, Default)]
pub(crate) struct Reset;

impl Fault for Reset {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let client = rng.pick(&world.client_hosts()).clone();
        let servers = world.server_hosts();
        let (mut at, mut peer) = (client, rng.pick(&servers).clone());
        if rng.chance(500) {
            std::mem::swap(&mut at, &mut peer);
        }
        world.network.reset(&at, &peer);
        Ok(format!("at {} with {}", at.name(), peer.name()))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.network.heal();
        Ok(())
    }
}

/// The leader and the other servers do not hear of each other. Connections are reset on the side of
/// the others, which elect another leader at once; or on none.
#[derive(Debug, Default)]
pub(crate) struct Peers;

impl Fault for Peers {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let servers = world.server_hosts();
        let leader = &servers[world
            .fleet
            .leader()
            .unwrap_or_else(|| rng.index(servers.len()))];
        let others: Vec<_> = servers
            .iter()
            .filter(|host| host.name() != leader.name())
            .cloned()
            .collect();
        let resets = rng.chance(700);
        if resets {
            others
                .iter()
                .for_each(|other| world.network.reset(other, leader));
        } else {
            world.network.partition(&[leader], &refs(&others));
        }
        let how = if resets { ", reset there" } else { "" };
        Ok(format!("{} and {}{how}", leader.name(), names(&others)))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.network.heal();
        Ok(())
    }
}

/// The host of a server loses its power: nobody gets a FIN or a RST. It comes back before sessions
/// end, or after that.
#[derive(Debug, Default)]
pub(crate) struct PowerLoss(Vec<usize>);

impl Fault for PowerLoss {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let hosts = world.server_hosts();
        let first = world
            .fleet
            .leader()
            .unwrap_or_else(|| rng.index(hosts.len()));
        self.0.push(first);
        for place in &self.0 {
            world.network.power_off(&hosts[*place]);
        }
        Ok(hosts[first].name().to_owned())
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        let hosts = world.server_hosts();
        for place in &self.0 {
            world.fleet.restart_host(*place);
            world.network.rejoin(&hosts[*place]);
        }
        Ok(())
    }
}

/// One or more of them.
fn draw(rng: &mut Rng, hosts: &[Host]) -> Vec<Host> {
    let count = 1 + rng.index(hosts.len());
    let first = rng.index(hosts.len());
    let wrapped = hosts.iter().chain(hosts).skip(first);
    wrapped.take(count).cloned().collect()
}

fn refs(hosts: &[Host]) -> Vec<&Host> {
    hosts.iter().collect()
}

fn names(hosts: &[Host]) -> String {
    hosts.iter().map(Host::name).collect::<Vec<_>>().join(" ")
}
