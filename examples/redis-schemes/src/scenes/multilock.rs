//! 8: MultiLock, the lock of scheme 6 on all of several independent masters. None of them can forget
//! a lock alone, so no fail-over gives it to two clients; the first that dies locks everybody out.

use anyhow::Result;

use super::redlock::Masters;
use crate::provocations::{self, nodes};
use crate::stage::{Fault, Report, Scene};

pub(crate) async fn master_dies() -> Result<Report> {
    let nodes = nodes();
    let scene = Scene::begin("8  all masters (MultiLock)", "a master dies");
    let locks = ["a", "b"].map(|value| Masters::new(&nodes, nodes.len(), value));
    provocations::master_dies(scene, &nodes, locks, &[Fault::Liveness]).await
}
