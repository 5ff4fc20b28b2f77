//! Requests and replies that are late, doubled or lost, for the clients behind the proxies.

use std::io;

use lock_testkit::proxy::{Direction, Fate, ReplyOrder};
use lock_testkit::sim::Rng;

use super::injection::{Injected, lasting};
use crate::world::World;

/// Everything of one direction is late, up to longer than a short lease.
pub(super) fn late(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let direction = *rng.pick(&[Direction::Replies, Direction::Requests]);
    let delay = rng.millis(100, 1_500);
    for proxy in &world.proxies {
        proxy.set_latency(direction, delay);
    }
    lasting(format!("{direction:?}, {delay:?}"), clear)
}

/// Every request arrives twice, at once or much later.
pub(super) fn twice(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let after = rng.millis(0, 3_000);
    for proxy in &world.proxies {
        let answer = ReplyOrder::First;
        proxy.plan_each(
            |command| WRITES.iter().any(|name| command.is(name)),
            Fate::Duplicated { after, answer },
        );
    }
    lasting(format!("after {after:?}"), clear)
}

/// Replies are held back, and then the connections are cut.
pub(super) fn lost(world: &mut World, _: &mut Rng) -> io::Result<Injected> {
    for proxy in &world.proxies {
        proxy.hold(Direction::Replies);
    }
    lasting(String::new(), |world| {
        world.proxies.iter().for_each(|proxy| proxy.cut());
        clear(world)
    })
}

fn clear(world: &mut World) -> io::Result<()> {
    world.proxies.iter().for_each(|proxy| proxy.clear());
    Ok(())
}

/// The commands of Redis that change locks.
const WRITES: [&str; 3] = ["EVAL", "EVALSHA", "SET"];
