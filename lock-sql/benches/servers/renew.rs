//! 1,000 held leases, renewed.

use std::time::{Duration, Instant};

use lock_core::DistributedLockExt;

use crate::figures::row;
use crate::locks::{connect, runtime};
use crate::server::{Database, Server};

const HELD: usize = 1_000;
const TTL: Duration = Duration::from_secs(6);

pub(crate) fn run(database: Database) {
    let server = Server::start(database, false);
    runtime().block_on(measure(database, &server));
}

async fn measure(database: Database, server: &Server) {
    let locks = connect(&format!("{}?mode=lease", server.url())).await;
    // A connection that nobody needs any more says for itself what it has done within 10 s.
    tokio::time::sleep(2 * TTL).await;
    let idle = statements_per_period(server).await;
    let mut guards = Vec::with_capacity(HELD);
    for n in 0..HELD {
        let request = locks.request(format!("held:{n}")).ttl(TTL);
        guards.push(request.acquire().await.unwrap());
    }
    // The first periods bring locks together that were taken apart.
    tokio::time::sleep(2 * TTL).await;
    let busy = statements_per_period(server).await;
    assert!(guards.iter().all(lock_core::LockGuard::is_held));
    row(
        &format!(
            "{} lease, 1,000 held, ttl 6 s: statements per renewal period; without any held",
            database.title()
        ),
        &format!("{busy:.1}; {idle:.1}"),
    );
    for guard in guards {
        guard.abandon();
    }
}

async fn statements_per_period(server: &Server) -> f64 {
    let (before, began) = (server.statements(), Instant::now());
    tokio::time::sleep(2 * TTL).await;
    let used = server.statements() - before;
    let periods = began.elapsed().as_secs_f64() / (TTL.as_secs_f64() / 3.0);
    used as f64 / periods
}
