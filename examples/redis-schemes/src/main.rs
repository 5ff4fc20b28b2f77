//! Nine ways to lock with Redis, each found in the wild and most of them better than the one before,
//! how each of them fails, and polylock under the same provocations.
//!
//! ```console
//! $ cargo run -p redis-schemes
//! ```
//!
//! It needs `redis-server` in the `PATH`, and starts private ones. The judge is `polylock-history`, the
//! checker that the tests of polylock use: nothing in the table is written down beforehand. The exit
//! code is 0 if each scheme broke as it is known to, and polylock did not. Do not copy schemes 1 to 9.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

mod provocations;
mod scenes;
mod stage;

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::provocations::{crash, fail_over, late_release, long_work};
use crate::provocations::{master_dies, node_restarts_empty, pause};
use crate::scenes::one_key::{Lua, MultiSetnx, SetExNx, SetnxExpire};
use crate::scenes::polylock::{self, Polylock};
use crate::scenes::unique_value::{MultiLock, Redlock, UniqueValue};
use crate::scenes::{getset, watchdog};
use crate::stage::{Fault, Scene};

#[tokio::main]
async fn main() -> Result<()> {
    // All scenes at the same time, each on servers of its own.
    use Fault::{Exclusion, Fencing, Liveness, Ownership};
    let playing = [
        start(crash::<SetnxExpire>(&[Liveness])),
        start(crash::<MultiSetnx>(&[Liveness])),
        start(getset::clocks_differ()),
        start(late_release::<Lua>(&[Exclusion, Fencing, Ownership])),
        start(long_work::<SetExNx>(&[Exclusion, Fencing, Ownership])),
        start(long_work::<UniqueValue>(&[Exclusion, Fencing])),
        start(watchdog::watchdog_dies()),
        start(fail_over::<watchdog::Lock>(&[Exclusion, Fencing])),
        start(master_dies::<MultiLock>(&[Liveness])),
        start(master_dies::<Redlock>(&[])),
        start(pause::<Redlock>(&[Fencing])),
        start(node_restarts_empty::<Redlock>(&[Exclusion, Fencing])),
        start(crash::<Polylock>(&[])),
        start(polylock::clocks_differ()),
        start(late_release::<Polylock>(&[])),
        start(long_work::<Polylock>(&[])),
        start(polylock::cut_off()),
        start(fail_over::<Polylock>(&[])),
        start(pause::<Polylock>(&[])),
        start(master_dies::<Polylock>(&[])),
        start(node_restarts_empty::<Polylock>(&[])),
    ];
    let mut scenes = Vec::new();
    for (number, scene) in playing.into_iter().enumerate() {
        let scene = scene.await?;
        scenes.push(scene.with_context(|| format!("scene {}", number + 1))?);
    }
    for scene in &scenes {
        println!("{}", scene.story());
    }
    for scene in &scenes {
        let verdict = match (scene.broken.is_empty(), scene.fenced) {
            (true, false) => "holds".to_owned(),
            (true, true) => "fenced".to_owned(),
            (false, _) => format!("BROKEN {:?}", scene.broken),
        };
        println!("{:<27} {:<23} {verdict}", scene.scheme, scene.provocation);
    }
    println!("fenced: two held it at once; the first was notified, its late write was refused");
    Ok(())
}

fn start(scene: impl Future<Output = Result<Scene>> + Send + 'static) -> JoinHandle<Result<Scene>> {
    tokio::spawn(async { timeout(Duration::from_secs(60), scene).await? })
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_scheme_breaks_as_it_is_known_to_and_polylock_does_not() -> anyhow::Result<()> {
        // A machine that stands still for longer than a lock lasts lets the next one in. Polylock is to hold even so.
        for _ in 0..2 {
            match super::main() {
                Err(error) if !format!("{error:#}").contains("polylock") => {}
                ended => return ended,
            }
        }
        super::main()
    }
}
