//! 6: a watchdog renews the lock, its owner may enter again, and a release is published.
//!
//! Work may take as long as it wants, for as long as the watchdog runs and the server remembers. If
//! one of them does not, nobody says so.

mod lock;

use std::time::Instant;

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Pair, Result, server, work};

use self::lock::Lock;

pub(crate) async fn fail_over() -> Result<Report> {
    let pair = Pair::start().await?;
    let mut a = Lock::connect(pair.port(), "a").await?;
    let scene = Scene::begin(script("fail-over"));

    pair.part();
    scene.notes("-", "the network between master and replica breaks");
    a.lock().await?;
    scene.enters("A", "the master says so; the replica does not know");
    pair.fail_over()?;
    scene.notes("-", "the master dies, the replica takes its place");
    let mut b = Lock::connect(pair.port(), "b").await?;
    b.lock().await?;
    scene.enters("B", "this master knows of no lock");
    scene.writes("B", None);
    a.watchdog_ends().await?;
    scene.notes("A", "its watchdog fails, which is a line in a log file");
    scene.writes("A", None);
    scene.leaves("A");
    scene.leaves("B");
    scene.releases("B", b.unlock().await?);
    Ok(scene.report())
}

pub(crate) async fn watchdog_dies() -> Result<Report> {
    let server = server();
    let mut a = Lock::connect(server.port(), "a").await?;
    let mut b = Lock::connect(server.port(), "b").await?;
    let mut c = Lock::connect(server.port(), "c").await?;
    let scene = Scene::begin(script("watchdog dies"));

    a.lock().await?;
    scene.enters(
        "A",
        format!("for {} ms, renewed by its watchdog", lock::TTL),
    );
    a.lock().await?;
    scene.notes("A", "enters again, and unlocks once");
    scene.releases("A", a.unlock().await?);
    a.kill_watchdog();
    scene.notes("A", "its watchdog dies, and nobody watches the watchdog");
    b.lock().await?;
    scene.enters("B", "the lock of A has expired");
    scene.writes("B", None);
    work().await;
    scene.writes("A", None);
    scene.leaves("A");

    let (waiting, released) = tokio::join!(c.lock_at(), async {
        b.has_waiter().await?;
        scene.leaves("B");
        let before = Instant::now();
        scene.releases("B", b.unlock().await?);
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(before)
    });
    let wait = waiting?.saturating_duration_since(released?);
    scene.enters(
        "C",
        format!("woken {:.1} ms after the release", wait.as_secs_f64() * 1e3),
    );
    scene.leaves("C");
    scene.releases("C", c.unlock().await?);
    Ok(scene.report())
}

fn script(provocation: &'static str) -> Script {
    Script {
        rung: "6",
        scheme: "watchdog, count, PUBLISH",
        how: "renewed in the background, may be entered again, wakes waiters",
        provocation,
        breaks: &[
            Invariant::MutualExclusion,
            Invariant::LossSignal,
            Invariant::Fencing,
        ],
    }
}
