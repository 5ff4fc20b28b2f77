use std::time::Duration;

use tokio::time::sleep;

use lock_core::prelude::*;

use super::{KEY, PATIENCE, TTL, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Address, Result, server};

/// As 6, when renewals do not get through: the guard knows by itself until when it is good.
pub(crate) async fn cut_off() -> Result<Report> {
    let server = server();
    let address = Address::of(server.port()).await?;
    let (a, b) = (
        connect(address.port()).await?,
        connect(server.port()).await?,
    );
    let scene = Scene::begin(script("renewal fails"));

    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters("A", "for 1 s, renewed");
    scene.writes("A", token(&guard));
    address.cut();
    scene.notes("-", "the network between A and the server breaks");
    // An answer that is on its way still counts.
    sleep(Duration::from_millis(50)).await;
    let until = guard.valid_until().ok_or("a lease has an end")?;
    let (reason, entered) = tokio::join!(guard.lost(), b.lock_within(KEY, PATIENCE));
    let next = entered?;
    scene.enters("B", "the lease of A has ended");
    scene.is_told_at(until.into_std(), "A", reason.to_string());
    scene.writes("B", token(&next));
    scene.notes("A", "a write that was on its way arrives");
    scene.writes("A", token(&guard));
    scene.leaves("B");
    next.release().await?;
    Ok(scene.report())
}
