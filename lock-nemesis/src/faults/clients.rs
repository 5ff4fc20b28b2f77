//! Faults of client processes.

use std::io;
use std::time::Duration;

use lock_testkit::sim::Rng;

use super::injection::{Injected, lasting, passing};
use crate::clients::Surroundings;
use crate::world::World;

/// A client is killed, and another takes its place.
pub(super) fn kill(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let client = rng.index(world.clients.count());
    world.clients.replace(client, &Surroundings::default())?;
    passing(format!("client {client}"))
}

/// Some clients are stopped for longer than their leases, or shorter.
pub(super) fn freeze(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let count = world.clients.count();
    let first = rng.index(count);
    let last = first + rng.index(count / 2);
    let stopped: Vec<_> = (first..=last).map(|client| client % count).collect();
    stopped
        .iter()
        .for_each(|client| world.clients.stop(*client));
    lasting(format!("clients {stopped:?}"), move |world| {
        stopped
            .iter()
            .for_each(|client| world.clients.resume(*client));
        Ok(())
    })
}

/// Clients move into containers with a boot id of their own, or with another boot clock.
pub(super) fn container(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let first = rng.index(world.clients.count());
    let moved = [first, (first + 1) % world.clients.count()];
    let mut met = Vec::new();
    for client in moved {
        let surroundings = if rng.chance(500) {
            met.push(format!("client {client}: boot id"));
            boot_id(rng)?
        } else {
            let seconds = 1 + rng.below(100_000);
            met.push(format!("client {client}: boot clock + {seconds} s"));
            boot_clock(Duration::from_secs(seconds))
        };
        world.clients.replace(client, &surroundings)?;
    }
    lasting(met.join(", "), move |world| {
        let replace = |client| world.clients.replace(client, &Surroundings::default());
        moved.into_iter().try_for_each(replace)
    })
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
