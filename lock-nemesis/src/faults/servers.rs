//! Faults of server processes.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use lock_testkit::servers::RedisSentinels;
use lock_testkit::sim::Rng;

use super::Fault;
use crate::backend::Backend;
use crate::fleet::Servers;
use crate::world::World;

/// A server is killed, and started again with what it has on its disk.
#[derive(Debug, Default)]
pub(crate) struct Kill(usize);

impl Fault for Kill {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let servers = world.fleet.servers();
        self.0 = rng.index(servers.len());
        servers[self.0].kill();
        Ok(format!("server {}", self.0))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        world.fleet.restart(self.0);
        Ok(())
    }
}

/// A server is stopped, and goes on later.
#[derive(Debug, Default)]
pub(crate) struct Freeze(Option<usize>);

impl Fault for Freeze {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let running = world.fleet.running();
        if running.is_empty() {
            return Ok("none runs".to_owned());
        }
        let server = *rng.pick(&running);
        self.0 = Some(server);
        world.fleet.servers()[server].stop();
        Ok(format!("server {server}"))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        let running = world.fleet.running();
        if let Some(server) = self.0.filter(|server| running.contains(server)) {
            world.fleet.servers()[server].resume();
        }
        Ok(())
    }
}

/// A server is killed and loses its data.
#[derive(Debug, Default)]
pub(crate) struct Forget;

impl Fault for Forget {
    fn inject(&mut self, world: &mut World, _: &mut Rng) -> io::Result<String> {
        world.fleet.restart_empty(0)?;
        Ok("server 0".to_owned())
    }

    fn heal(&mut self, _: &mut World) -> io::Result<()> {
        Ok(())
    }
}

/// One server after the other is restarted with a smaller limit of session timeouts, so that sessions
/// go on with another timeout.
#[derive(Debug, Default)]
pub(crate) struct Settings;

impl Settings {
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
}

impl Fault for Settings {
    fn inject(&mut self, world: &mut World, _: &mut Rng) -> io::Result<String> {
        Self::restart(world, "1000")?;
        Ok("all servers: maxSessionTimeout of 1 s".to_owned())
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        Self::restart(world, "10000")
    }
}

/// The file system that all servers and the clients of SQLite write to is full. What has died of it
/// is started again at the end.
#[derive(Debug, Default)]
pub(crate) struct FullDisk;

impl FullDisk {
    fn filler() -> PathBuf {
        env::temp_dir().join("filler")
    }
}

impl Fault for FullDisk {
    fn inject(&mut self, _: &mut World, _: &mut Rng) -> io::Result<String> {
        let mut filler = fs::File::create(Self::filler())?;
        let mut size = 1 << 20;
        let block = vec![0; size];
        while size > 0 {
            if filler.write_all(&block[..size]).is_err() {
                size /= 2;
            }
        }
        Ok(format!("{} MB more", filler.metadata()?.len() >> 20))
    }

    fn heal(&mut self, world: &mut World) -> io::Result<()> {
        // Another fault of this kind may have been healed before.
        fs::remove_file(Self::filler()).ok();
        if !matches!(
            world.backend,
            Backend::Redis | Backend::Sentinel | Backend::Cluster
        ) {
            world.fleet.restart_all();
        }
        Ok(())
    }
}

/// An operator orders another server to lead.
#[derive(Debug, Default)]
pub(crate) struct FailOver;

impl Fault for FailOver {
    fn inject(&mut self, world: &mut World, rng: &mut Rng) -> io::Result<String> {
        let (server, order): (_, &[&str]) = match &world.fleet.servers {
            Servers::Cluster(cluster) => {
                let replica = cluster.len() / 2 + rng.index(cluster.len() / 2);
                (&cluster[replica], &["CLUSTER", "FAILOVER"])
            }
            Servers::Sentinel(sentinels) => {
                let order = &["SENTINEL", "FAILOVER", RedisSentinels::MASTER];
                (rng.pick(sentinels.sentinels()), order)
            }
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        // One that another fault keeps away, or that leads already, does not obey.
        let reply = server
            .try_command(order)
            .ok()
            .and_then(|reply| reply.text());
        Ok(reply.unwrap_or_else(|| "refused".to_owned()))
    }

    fn heal(&mut self, _: &mut World) -> io::Result<()> {
        Ok(())
    }
}
