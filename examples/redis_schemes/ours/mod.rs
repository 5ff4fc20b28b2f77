//! Last: this library, under the provocations of all rungs.
//!
//! A lock that the server forgets is lost here as well. Its holder is told, and what it still writes
//! is refused, because the token of the next holder is larger.

mod crash;
mod cut_off;
mod fail_over;
mod late;
mod node_forgets;
mod paused;
mod skewed;
mod slow;

use std::time::Duration;

use lock_core::{AcquireRequest, LockGuard};
use lock_redis::{Redis, RedisConfig};

use crate::scene::Script;
use crate::stage::Result;

pub(crate) use self::crash::crash;
pub(crate) use self::cut_off::cut_off;
pub(crate) use self::fail_over::{fail_over, fail_over_with_acks};
pub(crate) use self::late::release_is_late;
pub(crate) use self::node_forgets::node_forgets;
pub(crate) use self::paused::paused;
pub(crate) use self::skewed::clocks_differ;
pub(crate) use self::slow::work_outlives_the_lock;

fn script(provocation: &'static str) -> Script {
    Script {
        rung: "8",
        scheme: "polylock",
        how: "renewed, with a signal of its loss and a token that grows with every holder",
        provocation,
        breaks: &[],
    }
}

fn config(port: u16) -> RedisConfig {
    RedisConfig::new("127.0.0.1", port)
}

async fn connect(port: u16) -> Result<Redis> {
    Ok(Redis::connect(config(port)).await?)
}

fn token(guard: &LockGuard) -> Option<u64> {
    guard.fencing_token().map(|token| token.value())
}

const KEY: &str = "orders";
/// As short as they come.
const TTL: Duration = AcquireRequest::MIN_TTL;
const PATIENCE: Duration = Duration::from_secs(10);
