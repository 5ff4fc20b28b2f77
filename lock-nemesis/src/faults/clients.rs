//! Faults of client processes.

use std::io;
use std::time::Duration;

use lock_testkit::sim::Rng;

use super::Fault;
use crate::clients::Surroundings;
use crate::world::World;

/// A client is killed, and another takes its place.
#[derive(Debug, Default)]
pub(crate) struct Kill;

impl Fault for Kill {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let client = rng.index(world.clients.count());
        world.clients.replace(client, &Surroundings::default())?;
        Ok(format!("client {client}"))
    }

    fn heal(&mut self, _: &mut World) -> io::Result<()> {
        Ok(())
    }
}

/// Some clients are stopped for longer than their leases, or shorter.
#[derive(Debug, Default)]
pub(crate) struct Freeze(Vec<usize>);

impl Fault for Freeze {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let half = world.clients.count() / 2;
        let first = rng.index(world.clients.count());
        self.0 = (first..=first + rng.index(half)).collect();
        for client in &mut self.0 {
            *client %= world.clients.count();
            world.clients.stop(*client);
        }
        Ok(format!("clients {:?}", self.0))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        self.0
            .iter()
            .for_each(|client| world.clients.resume(*client));
        Ok(())
    }
}

/// Clients move into containers with a boot id of their own, or with another boot clock.
#[derive(Debug, Default)]
pub(crate) struct Container(Vec<usize>);

impl Fault for Container {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let first = rng.index(world.clients.count());
        let mut met = Vec::new();
        for client in [first, (first + 1) % world.clients.count()] {
            let surroundings = if rng.chance(500) {
                met.push(format!("client {client}: boot id"));
                boot_id(rng)?
            } else {
                let offset = Duration::from_secs(1 + rng.below(100_000));
                met.push(format!(
                    "client {client}: boot clock + {} s",
                    offset.as_secs()
                ));
                boot_clock(offset)
            };
            world.clients.replace(client, &surroundings)?;
            self.0.push(client);
        }
        Ok(met.join(", "))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        for client in &self.0 {
            world.clients.replace(*client, &Surroundings::default())?;
        }
        Ok(())
    }
}

fn boot_id(rng: &mut Rng) -> io::Result<Surroundings> {
    let id = format!(
        "{:08x}-0000-4000-8000-{:012x}",
        rng.below(1 << 32),
        rng.below(1 << 48)
    );
    let script = "echo \"$0\" >/run/boot_id && \
                  mount --bind /run/boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";
    // The file system that holds the file is private to the container.
    let script = format!("mount -t tmpfs none /run && {script}");
    let words = ["unshare", "--mount", "sh", "-c", &script, &id];
    Ok(Surroundings {
        wrapper: words.map(str::to_owned).into(),
        ..Surroundings::default()
    })
}

fn boot_clock(offset: Duration) -> Surroundings {
    let seconds = offset.as_secs().to_string();
    let words = ["unshare", "--time", "--boottime", &seconds];
    Surroundings {
        wrapper: words.map(str::to_owned).into(),
        boot_offset: offset,
    }
}
