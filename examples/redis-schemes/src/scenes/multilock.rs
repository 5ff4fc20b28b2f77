//! 8: MultiLock, the lock of scheme 6 on all of several independent masters. None of them can forget
//! a lock alone, so no fail-over gives it to two clients; the first that dies locks everybody out.

use std::time::Duration;

use anyhow::Result;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::redlock::Masters;
use crate::stage::{Fault, IN_VAIN, Report, Scene, nodes};

pub(crate) async fn master_dies() -> Result<Report> {
    let nodes = nodes();
    let mut scene = Scene::begin("8  all masters (MultiLock)", "a master dies");
    let a = Masters::all(&nodes, "a");
    a.lock(&mut scene, 'A', TTL).await?;
    scene.writes('A');
    scene.releases('A', a.release().await);
    block_in_place(|| nodes[2].kill());
    scene.note("one of three masters dies; nobody holds the lock");
    let b = Masters::all(&nodes, "b");
    scene.asks('B');
    let deadline = Instant::now() + IN_VAIN;
    while Instant::now() < deadline {
        if let Some(valid) = b.acquire(TTL).await? {
            scene.enters('B', Some(valid));
            return scene.judge(&[Fault::Liveness]);
        }
        sleep(Duration::from_millis(100)).await;
    }
    scene.gives_up('B', "two masters of three are not all of them");
    scene.judge(&[Fault::Liveness])
}

const TTL: Duration = Duration::from_secs(2);
