//! Facts that servers report about themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redis::{Cmd, Value, cmd, from_redis_value};
use tokio::time::Instant;

use crate::error::{RedisCause, RedisFailure};
use crate::topology::{RedisNode, Topology};

/// The facts that one server reports; `None` for those that it does not report.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFacts {
    pub(crate) server: Arc<str>,
    pub(crate) clock: Option<Offset>,
    pub(crate) fsync: Option<String>,
    /// Whether nothing is fsynced while a child writes a snapshot or rewrites the file, even with
    /// `appendfsync always`.
    pub(crate) skips_fsync: Option<bool>,
    pub(crate) has_aof: Option<bool>,
    pub(crate) has_snapshots: Option<bool>,
    /// With fewer replicas the server accepts no writes.
    pub(crate) min_replicas: Option<u32>,
    /// Max lag, in seconds, of a replica that counts for `min_replicas`.
    pub(crate) max_lag: Option<u64>,
    pub(crate) maxmemory: Option<u64>,
    /// `standalone`, `cluster` or `sentinel`.
    pub(crate) mode: Option<String>,
    pub(crate) policy: Option<String>,
    pub(crate) replicas: Option<u32>,
    pub(crate) role: Option<String>,
    pub(crate) run_id: Option<String>,
}

/// Min and max offset of a clock, in either direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Offset {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

const SETTINGS: [&str; 5] = [
    "save",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "min-replicas-to-write",
    "min-replicas-max-lag",
];

/// What the masters report.
pub(super) struct Asked {
    /// Not empty.
    pub(super) servers: Vec<ServerFacts>,
    /// The masters that cannot be reached, beside those that reply.
    pub(super) missing: Vec<RedisFailure>,
}

/// Queries all masters at once; leaves out facts that this user may not read. Fails if no master replies.
pub(super) async fn ask(topology: &dyn Topology) -> Result<Asked, RedisFailure> {
    let masters = topology.masters().await?;
    let asked = masters.iter().map(|node| async move {
        let facts = ask_one(node).await;
        facts.inspect_err(|failure| topology.learn(node, failure))
    });
    let (mut servers, mut missing) = (Vec::new(), Vec::new());
    for facts in join_all(asked).await {
        match facts {
            Ok(facts) => servers.push(facts),
            Err(failure) if failure.is_retryable() => missing.push(failure),
            Err(failure) => return Err(failure),
        }
    }
    if servers.is_empty() {
        let failure = missing.into_iter().next();
        return Err(failure.unwrap_or_else(|| RedisCause::Uncovered { slot: 0 }.into()));
    }
    Ok(Asked { servers, missing })
}

async fn ask_one(node: &RedisNode) -> Result<ServerFacts, RedisFailure> {
    let mut facts = ServerFacts {
        server: Arc::clone(node.server()),
        ..ServerFacts::default()
    };
    if let Some(info) = reply_of(node, &cmd("INFO")).await? {
        facts.info(info);
    }
    for name in SETTINGS {
        let mut config = cmd("CONFIG");
        config.arg("GET").arg(name);
        if let Some(values) = reply_of(node, &config).await? {
            facts.setting(values);
        }
    }
    let (asked, sent) = (SystemTime::now(), Instant::now());
    if let Some(time) = reply_of(node, &cmd("TIME")).await? {
        facts.clock = offset(time, asked, sent.elapsed());
    }
    Ok(facts)
}

/// The reply of a server; `None` if it refuses the command.
async fn reply_of(node: &RedisNode, command: &Cmd) -> Result<Option<Value>, RedisFailure> {
    match node.run(command).await {
        Ok(reply) => Ok(Some(reply)),
        Err(failure) if failure.refusal().is_some() => {
            tracing::debug!(?failure, "a check is left out");
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

impl ServerFacts {
    fn info(&mut self, info: Value) {
        let Ok(text) = from_redis_value::<String>(info) else {
            return;
        };
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let fields: HashMap<_, _> = lines.collect();
        let own = |name: &str| fields.get(name).map(|value| (*value).to_owned());
        let flag = |name: &str| fields.get(name).map(|value| *value == "1");
        let number = |name: &str| fields.get(name).and_then(|n| n.parse::<u64>().ok());
        self.has_aof = flag("aof_enabled");
        self.maxmemory = number("maxmemory");
        // Valkey has the second name.
        self.mode = own("redis_mode").or_else(|| own("server_mode"));
        self.policy = own("maxmemory_policy");
        self.replicas = number("connected_slaves").and_then(|n| u32::try_from(n).ok());
        self.role = own("role");
        self.run_id = own("run_id");
    }

    fn setting(&mut self, values: Value) {
        let Ok(values) = from_redis_value::<HashMap<String, String>>(values) else {
            return;
        };
        for (name, value) in values {
            match name.as_str() {
                "save" => self.has_snapshots = Some(!value.is_empty()),
                "appendfsync" => self.fsync = Some(value),
                "no-appendfsync-on-rewrite" => self.skips_fsync = Some(value != "no"),
                "min-replicas-to-write" => self.min_replicas = value.parse().ok(),
                "min-replicas-max-lag" => self.max_lag = value.parse().ok(),
                _ => {}
            }
        }
    }
}

/// The offset of a clock. The server read it at an unknown moment within the round trip.
fn offset(time: Value, asked: SystemTime, round: Duration) -> Option<Offset> {
    let (seconds, micros) = from_redis_value::<(u64, u32)>(time).ok()?;
    let there = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros.into()))?;
    let here = asked.duration_since(UNIX_EPOCH).ok()? + round / 2;
    let off = there.abs_diff(here);
    Some(Offset {
        least: off.saturating_sub(round / 2),
        most: off.saturating_add(round / 2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_that_of_the_clock_and_not_of_the_network() {
        let asked = UNIX_EPOCH + Duration::from_secs(100);
        let time = |seconds: &str| {
            let parts = [seconds, "500000"].map(|text| Value::BulkString(text.into()));
            Value::Array(parts.to_vec())
        };
        let round = Duration::from_secs(2);
        let cases = [
            ("101", 0, 1_500),
            ("100", 0, 1_500),
            ("104", 2_500, 4_500),
            ("97", 2_500, 4_500),
        ];
        for (there, least, most) in cases {
            let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
            let off = Some(Offset { least, most });
            assert_eq!(
                offset(time(there), asked, round),
                off,
                "{there} s at the server"
            );
        }
        assert_eq!(offset(Value::Okay, asked, round), None);
        for (micros, is_time) in [("999999", true), ("1000000", false)] {
            let parts = [&*u64::MAX.to_string(), micros];
            let parts = parts.map(|text| Value::BulkString(text.into()));
            let offset = offset(Value::Array(parts.to_vec()), asked, round);
            assert_eq!(offset.is_some(), is_time, "{micros} us");
        }
    }
}
