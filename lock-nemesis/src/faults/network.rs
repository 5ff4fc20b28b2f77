//! Faults of the network between clients and servers, and between servers.

use std::io;

use lock_testkit::network::NetworkHost;
use lock_testkit::sim::Rng;

use super::injection::{Injected, lasting};
use crate::world::World;

/// All packets between some clients and some servers are dropped silently.
pub(super) fn partition(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let clients = draw(rng, &world.clients.hosts());
    let servers = draw(rng, &world.fleet.hosts());
    world.network.partition(&refs(&clients), &refs(&servers));
    until_healed(format!("{} and {}", names(&clients), names(&servers)))
}

/// All hosts are on one side or on the other: the leader of the servers, one server with it at
/// most, and some clients; and the rest.
pub(super) fn split(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let mut one = draw(rng, &world.clients.hosts());
    one.push(world.fleet.hosts()[leader(world, rng)].clone());
    let mut other = world.clients.hosts();
    other.extend(world.fleet.hosts());
    other.retain(|host| one.iter().all(|own| own.name() != host.name()));
    world.network.partition(&refs(&one), &refs(&other));
    until_healed(format!("{} and {}", names(&one), names(&other)))
}

/// Packets of one direction are lost between some clients and some servers: connections are half
/// open.
pub(super) fn half_open(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let mut from = draw(rng, &world.clients.hosts());
    let mut to = draw(rng, &world.fleet.hosts());
    if rng.chance(500) {
        std::mem::swap(&mut from, &mut to);
    }
    for from in &from {
        to.iter().for_each(|to| world.network.block(from, to));
    }
    until_healed(format!("from {} to {}", names(&from), names(&to)))
}

/// Connections of a client are reset on one side only.
pub(super) fn reset(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let mut at = rng.pick(&world.clients.hosts()).clone();
    let mut peer = rng.pick(&world.fleet.hosts()).clone();
    if rng.chance(500) {
        std::mem::swap(&mut at, &mut peer);
    }
    world.network.reset(&at, &peer);
    until_healed(format!("at {} with {}", at.name(), peer.name()))
}

/// The leader and the other servers do not hear of each other. Connections are reset on the side of
/// the others, which elect another leader at once; or on none.
pub(super) fn peers(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let mut others = world.fleet.hosts();
    let leader = others.remove(leader(world, rng));
    let how = if rng.chance(700) {
        others
            .iter()
            .for_each(|other| world.network.reset(other, &leader));
        ", reset there"
    } else {
        world.network.partition(&[&leader], &refs(&others));
        ""
    };
    until_healed(format!("{} and {}{how}", leader.name(), names(&others)))
}

/// The host of a server loses power, without a FIN or a RST. It comes back before sessions end, or
/// later.
pub(super) fn power_loss(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let place = leader(world, rng);
    let host = world.fleet.hosts().remove(place);
    world.network.power_off(&host);
    lasting(host.name().to_owned(), move |world| {
        world.fleet.restart_host(place);
        world.network.rejoin(&host);
        Ok(())
    })
}

fn until_healed(met: String) -> io::Result<Injected> {
    lasting(met, |world| {
        world.network.heal();
        Ok(())
    })
}

/// The server that grants locks, or any.
fn leader(world: &World, rng: &mut Rng) -> usize {
    let any = || rng.index(world.fleet.hosts().len());
    world.fleet.leader().unwrap_or_else(any)
}

/// One or more of them.
fn draw(rng: &mut Rng, hosts: &[NetworkHost]) -> Vec<NetworkHost> {
    let count = 1 + rng.index(hosts.len());
    let first = rng.index(hosts.len());
    let wrapped = hosts.iter().chain(hosts).skip(first);
    wrapped.take(count).cloned().collect()
}

fn refs(hosts: &[NetworkHost]) -> Vec<&NetworkHost> {
    hosts.iter().collect()
}

fn names(hosts: &[NetworkHost]) -> String {
    hosts
        .iter()
        .map(NetworkHost::name)
        .collect::<Vec<_>>()
        .join(" ")
}
