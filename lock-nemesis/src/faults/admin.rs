//! What administrators do.

use std::io;

use lock_testkit::sim::Rng;

use super::injection::{Injected, passing};
use crate::fleet::FleetServers;
use crate::world::World;

/// An operator breaks a lock.
pub(super) fn break_lock(world: &mut World, rng: &mut Rng) -> io::Result<Injected> {
    let key = rng.pick(&world.keys).clone();
    let url = world.fleet.url() + &world.backend.parameters();
    let host = world.network.host("operator");
    let outcome = host.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok::<_, io::Error>(runtime.block_on(async {
            let locks = polylock::connect(&url).await?;
            match locks.admin() {
                Some(admin) => admin.break_lock(&key, "nemesis").await,
                None => Ok(None),
            }
        }))
    })?;
    let how = match outcome {
        Ok(Some(_)) => "broken",
        Err(error) if error.is_outcome_unknown() => "perhaps broken",
        // The lock is free, or another fault keeps the service away.
        Ok(None) | Err(_) => "not broken",
    };
    passing(format!("{key} {how}"))
}

/// The server ends all sessions of clients.
pub(super) fn end_sessions(world: &mut World, _: &mut Rng) -> io::Result<Injected> {
    let outcome = match &world.fleet.servers {
        FleetServers::Postgres(server) => server.try_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'test'",
        ),
        FleetServers::MariaDb(server) => server.try_sql("KILL USER test"),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    passing(if outcome.is_ok() { "all" } else { "none" })
}
