//! Requests and replies that are late, doubled or lost, for the clients behind the proxies.

use std::io;

use lock_testkit::proxy::{Answer, Direction, Fate};
use lock_testkit::sim::Rng;

use super::Fault;
use crate::backend::Backend;
use crate::world::World;

/// Everything of one direction is late, up to longer than a short lease.
#[derive(Debug, Default)]
pub(crate) struct Late;

impl Fault for Late {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let direction = *rng.pick(&[Direction::Replies, Direction::Requests]);
        let delay = rng.millis(100, 1_500);
        for proxy in &world.proxies {
            proxy.set_latency(direction, delay);
        }
        Ok(format!("{direction:?}, {delay:?}"))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        clear(world);
        Ok(())
    }
}

/// Every request arrives twice, at once or much later.
#[derive(Debug, Default)]
pub(crate) struct Twice;

impl Fault for Twice {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let after = rng.millis(0, 3_000);
        for proxy in &world.proxies {
            let answer = Answer::First;
            proxy.plan_each(
                |command| WRITES.iter().any(|name| command.is(name)),
                Fate::Duplicated { after, answer },
            );
        }
        Ok(format!("after {after:?}"))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        clear(world);
        Ok(())
    }
}

/// Replies are held back, and then the connections are cut.
#[derive(Debug, Default)]
pub(crate) struct Lost;

impl Fault for Lost {
    fn inject(&mut self, world: &mut World, _: &mut Rng) -> io::Result<String> {
        for proxy in &world.proxies {
            proxy.hold(Direction::Replies);
        }
        Ok(String::new())
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.proxies.iter().for_each(|proxy| proxy.cut());
        clear(world);
        Ok(())
    }
}

fn clear(world: &World) {
    for proxy in &world.proxies {
        proxy.clear();
    }
}

/// Whether some clients reach the servers through proxies: where servers refer clients to each
/// other, these would pass by.
pub(crate) fn has_proxies(backend: Backend) -> bool {
    !matches!(
        backend,
        Backend::Cluster | Backend::Sentinel | Backend::Sqlite
    )
}

/// The commands of Redis that change locks.
const WRITES: [&str; 3] = ["EVAL", "EVALSHA", "SET"];
