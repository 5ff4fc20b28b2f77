//! 5: `SET key value EX seconds NX`. One command instead of a script, and no safer: work that
//! outlives the lock goes on beside the next holder and ends with the deletion of its lock.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, SetExpiry, SetOptions};

use crate::provocations::{self, clients};
use crate::stage::{self, Fault, Report, Scene};

pub(crate) async fn work_outlives_lock() -> Result<Report> {
    let (_server, redis) = clients().await?;
    let scene = Scene::begin("5  SET EX NX", "work outlives the lock");
    let expected = [Fault::Exclusion, Fault::Fencing, Fault::Ownership];
    provocations::long_work(scene, redis.map(Lock), &expected).await
}

struct Lock(MultiplexedConnection);

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(TTL.as_secs()));
        let answer: Option<String> = self.0.set_options(KEY, "locked", options).await?;
        Ok(answer.map(|_| TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}

const KEY: &str = "lock:orders";
const TTL: Duration = Duration::from_secs(1);
