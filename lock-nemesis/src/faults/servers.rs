//! Faults of server processes.

use std::fs;
use std::io::{self, Write};

use lock_testkit::servers::{RedisSentinels, data_dir};
use lock_testkit::sim::Rng;

use super::injection::{Injected, lasting, passing};
use crate::backend::BackendKind;
use crate::fleet::FleetServers;
use crate::world::World;

/// A server is killed, and started again with what it has on its disk.
pub(super) fn kill(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let servers = world.fleet.servers();
    let server = rng.index(servers.len());
    servers[server].kill();
    lasting(format!("server {server}"), move |world| {
        world.fleet.restart(server);
        Ok(())
    })
}

/// A server is stopped, and goes on later.
pub(super) fn freeze(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let running = world.fleet.running();
    if running.is_empty() {
        return passing("none runs");
    }
    let server = *rng.pick(&running);
    world.fleet.servers()[server].stop();
    lasting(format!("server {server}"), move |world| {
        if world.fleet.running().contains(&server) {
            world.fleet.servers()[server].resume();
        }
        Ok(())
    })
}

/// A server is killed and loses its data.
pub(super) fn forget(world: &mut World, _: &mut Rng) -> io::Result<Injected> {
    world.fleet.restart_empty(0)?;
    passing("server 0")
}

/// One server after the other is restarted with a smaller limit of session timeouts, so that sessions
/// go on with another timeout.
pub(super) fn settings(world: &mut World, _: &mut Rng) -> io::Result<Injected> {
    fn restart(world: &World, max_session: &str) -> io::Result<()> {
        for (place, server) in world.fleet.servers().into_iter().enumerate() {
            let file = server.dir().join("zoo.cfg");
            let mut lines = fs::read_to_string(&file)?;
            lines.push_str(&format!("maxSessionTimeout={max_session}\n"));
            server.kill();
            fs::write(&file, lines)?;
            world.fleet.restart(place);
            world.fleet.wait_until_serves(place);
        }
        Ok(())
    }
    restart(world, "1000")?;
    lasting("all servers: maxSessionTimeout of 1 s", |world| {
        restart(world, "10000")
    })
}

/// The file system of all servers and SQLite clients is full. Processes that died of it are started
/// again at the end.
pub(super) fn full_disk(_: &mut World, _: &mut Rng) -> io::Result<Injected> {
    let path = data_dir().join("filler");
    let mut filler = fs::File::create(&path)?;
    let mut size = 1 << 20;
    let block = vec![0; size];
    while size > 0 {
        if filler.write_all(&block[..size]).is_err() {
            size /= 2;
        }
    }
    let met = format!("{} MB more", filler.metadata()?.len() >> 20);
    lasting(met, move |world| {
        // Another fault of this kind may have been healed before.
        fs::remove_file(path).ok();
        if !matches!(
            world.backend,
            BackendKind::Redis | BackendKind::Sentinel | BackendKind::Cluster
        ) {
            world.fleet.restart_all();
        }
        Ok(())
    })
}

/// An operator orders another server to lead.
pub(super) fn fail_over(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let (server, order): (_, &[&str]) = match &world.fleet.servers {
        FleetServers::Cluster(cluster) => {
            let replica = cluster.len() / 2 + rng.index(cluster.len() / 2);
            (&cluster[replica], &["CLUSTER", "FAILOVER"])
        }
        FleetServers::Sentinel(sentinels) => {
            let order = &["SENTINEL", "FAILOVER", RedisSentinels::MASTER];
            (rng.pick(sentinels.sentinels()), order)
        }
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    // A server that leads already, or that another fault cuts off, does not obey.
    let reply = server.try_command(order).ok();
    let reply = reply.and_then(|reply| reply.text());
    passing(reply.unwrap_or_else(|| "refused".to_owned()))
}
