//! What is looked at before a server gets locks to keep.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, Value, cmd, from_redis_value};

use crate::config::{RedisConfig, Servers};
use crate::error::{Cause, Failure};
use crate::link::Link;

/// Looks at every master behind a link, and warns of what it finds; with strict checks, refuses.
///
/// What the server does not tell this user is left out.
pub(crate) async fn check(link: &dyn Link, config: &RedisConfig) -> Result<(), Failure> {
    let mut found: Vec<Finding> = Vec::new();
    for facts in ask(link).await? {
        for finding in findings(&facts, &Wanted::of(config)) {
            if !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    if config.strict && !found.is_empty() {
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        let message = format!("strict=on refuses this server: {}", found.join(". "));
        return Err(Cause::Config(message).into());
    }
    for Finding { what, why, way_out } in found {
        tracing::warn!(%what, why, way_out, "a server is not fit for locks");
    }
    Ok(())
}

/// What a server says of itself; `None` where it does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    clock_offset: Option<Duration>,
    fsync: Option<String>,
    has_aof: Option<bool>,
    has_snapshots: Option<bool>,
    is_cluster: Option<bool>,
    maxmemory: Option<u64>,
    policy: Option<String>,
    replicas: Option<u32>,
    role: Option<String>,
    version: Option<(u32, u32)>,
}

/// What the configuration says of it.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    cluster: bool,
    replica_acks: u32,
}

impl Wanted {
    fn of(config: &RedisConfig) -> Self {
        Self {
            cluster: matches!(config.servers, Servers::Cluster(_)),
            replica_acks: config.replica_acks,
        }
    }
}

/// What is wrong with a server.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: {why}; {way_out}")]
struct Finding {
    what: String,
    why: &'static str,
    way_out: &'static str,
}

fn findings(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |what: String, why, way_out| found.push(Finding { what, why, way_out });
    if let Some(version) = facts.version.filter(|version| *version < OLDEST) {
        find(
            format!("the server is Redis {}.{}", version.0, version.1),
            "it is older than anything that this library is tested with",
            "use Redis 6.0 or later",
        );
    }
    if facts.role.as_deref().is_some_and(|role| role != "master") {
        find(
            "the server is a replica".to_owned(),
            "it takes no writes",
            "name its master, or the Sentinels that know it",
        );
    }
    if facts.is_cluster == Some(true) && !wanted.cluster {
        find(
            "the server is a node of a cluster".to_owned(),
            "it refuses the keys of other nodes",
            "use redis-cluster://",
        );
    }
    if let (Some(1..), Some(policy)) = (facts.maxmemory, &facts.policy)
        && policy != "noeviction"
    {
        find(
            format!("maxmemory-policy is {policy}"),
            "a lock may be evicted while it is held",
            "set maxmemory-policy to noeviction, or give locks a server of their own",
        );
    }
    if let Some((what, why)) = persistence(facts) {
        let way_out = "set appendonly to yes and appendfsync to everysec, or to always if no crash \
                       may cost a lock";
        find(what, why, way_out);
    }
    if let Some(replicas) = facts.replicas {
        let acks = wanted.replica_acks;
        if acks > replicas {
            find(
                format!("min-replica-acks is {acks} and the master has {replicas} replicas"),
                "nothing can be acquired",
                "connect more replicas or ask for fewer",
            );
        } else if replicas > 0 && acks == 0 {
            find(
                "the master has replicas and does not wait for them".to_owned(),
                "a fail-over loses the locks that have not reached the new master",
                "set min-replica-acks=1, and min-replicas-to-write on the server",
            );
        }
    }
    if let Some(offset) = facts.clock_offset.filter(|offset| *offset > MOST_OFFSET) {
        find(
            format!("the clock of the server differs by {} s", offset.as_secs()),
            "a clock that is set by a jump ends leases early, or makes them stay",
            "run a time service that slews clocks on both machines",
        );
    }
    found
}

/// The first version with RESP3 and access rules.
const OLDEST: (u32, u32) = (6, 0);

const MOST_OFFSET: Duration = Duration::from_secs(1);

fn persistence(facts: &Facts) -> Option<(String, &'static str)> {
    match (facts.has_aof?, facts.has_snapshots) {
        (true, _) if facts.fsync.as_deref() == Some("no") => Some((
            "appendfsync is no".to_owned(),
            "a crash of the machine frees the locks of the last half minute",
        )),
        (true, _) => None,
        (false, Some(false)) => Some((
            "the server persists nothing".to_owned(),
            "a restart frees all locks while they are held",
        )),
        (false, Some(true)) => Some((
            "the server persists snapshots only".to_owned(),
            "a restart frees the locks since the last one while they are held",
        )),
        (false, None) => Some((
            "the server has no append-only file".to_owned(),
            "a restart frees locks while they are held",
        )),
    }
}

async fn ask(link: &dyn Link) -> Result<Vec<Facts>, Failure> {
    let mut servers: Vec<Facts> = Vec::new();
    let mut add = |answers: Vec<Value>, how: fn(&mut Facts, Value)| {
        if servers.len() < answers.len() {
            servers.resize(answers.len(), Facts::default());
        }
        for (facts, answer) in servers.iter_mut().zip(answers) {
            how(facts, answer);
        }
    };
    add(answers(link, &cmd("INFO")).await?, Facts::info);
    for name in ["save", "appendfsync"] {
        let mut config = cmd("CONFIG");
        config.arg("GET").arg(name);
        add(answers(link, &config).await?, Facts::config);
    }
    let asked = SystemTime::now();
    let times = answers(link, &cmd("TIME")).await?;
    let round = asked.elapsed().unwrap_or_default();
    for (facts, time) in servers.iter_mut().zip(times) {
        facts.clock_offset = offset(time, asked, round);
    }
    Ok(servers)
}

/// The answer of each master, or none if they do not tell this user.
async fn answers(link: &dyn Link, command: &Cmd) -> Result<Vec<Value>, Failure> {
    match link.on_each_master(command).await {
        Err(failure) if failure.refusal().is_some() => {
            tracing::debug!(?failure, "a start-up check is left out");
            Ok(Vec::new())
        }
        outcome => outcome,
    }
}

impl Facts {
    fn info(&mut self, answer: Value) {
        let Ok(text) = from_redis_value::<String>(answer) else {
            return;
        };
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let fields: HashMap<_, _> = lines.collect();
        let own = |name: &str| fields.get(name).map(|value| (*value).to_owned());
        let flag = |name: &str| fields.get(name).map(|value| *value == "1");
        self.has_aof = flag("aof_enabled");
        self.is_cluster = flag("cluster_enabled");
        self.maxmemory = fields.get("maxmemory").and_then(|bytes| bytes.parse().ok());
        self.policy = own("maxmemory_policy");
        self.replicas = fields.get("connected_slaves").and_then(|n| n.parse().ok());
        self.role = own("role");
        self.version = fields.get("redis_version").and_then(|text| {
            let mut numbers = text.split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
    }

    fn config(&mut self, answer: Value) {
        let Ok(mut values) = from_redis_value::<HashMap<String, String>>(answer) else {
            return;
        };
        if let Some(points) = values.remove("save") {
            self.has_snapshots = Some(!points.is_empty());
        }
        if let Some(fsync) = values.remove("appendfsync") {
            self.fsync = Some(fsync);
        }
    }
}

/// How far a clock was off, at least, in whichever direction.
fn offset(time: Value, asked: SystemTime, round: Duration) -> Option<Duration> {
    let (seconds, micros) = from_redis_value::<(u64, u32)>(time).ok()?;
    let there = Duration::new(seconds, micros.checked_mul(1000)?);
    let here = asked.duration_since(UNIX_EPOCH).ok()? + round / 2;
    Some(there.abs_diff(here).saturating_sub(round / 2))
}

#[cfg(test)]
mod tests {
    use lock_core::{Error, ErrorKind};
    use lock_testkit::servers::{RedisOptions, RedisServer};

    use super::*;
    use crate::link::tests::{config as plain, open};

    fn good() -> Facts {
        Facts {
            clock_offset: Some(Duration::from_millis(900)),
            fsync: Some("everysec".to_owned()),
            has_aof: Some(true),
            has_snapshots: Some(false),
            is_cluster: Some(false),
            maxmemory: Some(1 << 30),
            policy: Some("noeviction".to_owned()),
            replicas: Some(0),
            role: Some("master".to_owned()),
            version: Some((7, 0)),
        }
    }

    const ALONE: Wanted = Wanted {
        cluster: false,
        replica_acks: 0,
    };

    type Change = fn(&mut Facts);

    #[test]
    fn each_fault_is_found_by_itself() {
        assert_eq!(findings(&good(), &ALONE), []);
        assert_eq!(findings(&Facts::default(), &ALONE), []);
        let cases: [(Change, &str); 12] = [
            (|f| f.version = Some((5, 9)), "Redis 5.9"),
            (|f| f.role = Some("slave".to_owned()), "replica"),
            (|f| f.is_cluster = Some(true), "redis-cluster://"),
            (|f| f.policy = Some("allkeys-lru".to_owned()), "evicted"),
            (
                |f| f.policy = Some("volatile-ttl".to_owned()),
                "volatile-ttl",
            ),
            (|f| f.fsync = Some("no".to_owned()), "half minute"),
            (|f| f.has_aof = Some(false), "persists nothing"),
            (
                |f| (f.has_aof, f.has_snapshots) = (Some(false), Some(true)),
                "snapshots only",
            ),
            (
                |f| (f.has_aof, f.has_snapshots) = (Some(false), None),
                "no append-only file",
            ),
            (|f| f.replicas = Some(1), "min-replica-acks=1"),
            (|f| f.clock_offset = Some(Duration::from_secs(3)), "by 3 s"),
            (|f| f.version = Some((4, 0)), "6.0 or later"),
        ];
        for (change, says) in cases {
            let mut facts = good();
            change(&mut facts);
            let found = findings(&facts, &ALONE);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].to_string().contains(says), "{}", found[0]);
        }
    }

    #[test]
    fn what_is_harmless_is_not_found() {
        let cases: [Change; 4] = [
            |f| (f.maxmemory, f.policy) = (Some(0), Some("allkeys-lru".to_owned())),
            |f| f.fsync = Some("always".to_owned()),
            |f| f.fsync = None,
            |f| f.version = Some((6, 0)),
        ];
        for change in cases {
            let mut facts = good();
            change(&mut facts);
            assert_eq!(findings(&facts, &ALONE), []);
        }
        let mut facts = good();
        (facts.replicas, facts.is_cluster) = (Some(2), Some(true));
        let wanted = |replica_acks| Wanted {
            cluster: true,
            replica_acks,
        };
        assert_eq!(findings(&facts, &wanted(2)), []);
        assert!(
            findings(&facts, &wanted(3))[0]
                .what
                .contains("has 2 replicas")
        );
    }

    #[test]
    fn an_offset_is_that_of_the_clock_and_not_of_the_network() {
        let asked = UNIX_EPOCH + Duration::from_secs(100);
        let time = |seconds: &str| {
            let parts = [seconds, "500000"].map(|text| Value::BulkString(text.into()));
            Value::Array(parts.to_vec())
        };
        let round = Duration::from_secs(2);
        for (there, off) in [("101", 0), ("100", 0), ("104", 2_500), ("97", 2_500)] {
            let off = Some(Duration::from_millis(off));
            assert_eq!(offset(time(there), asked, round), off, "{there}");
        }
        assert_eq!(offset(Value::Okay, asked, round), None);
    }

    #[tokio::test]
    async fn a_strict_configuration_refuses_a_server_that_persists_nothing() {
        let server =
            RedisServer::start(RedisOptions::new().with_user("few", "on >pw ~* &* +eval +evalsha"));
        let strict = plain(&server).with_strict_checks();
        let (link, _) = open(&plain(&server)).await;
        let error = Error::from(check(&*link, &strict).await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains("persists nothing"), "{error}");
        check(&*link, &plain(&server)).await.unwrap();

        server.command(&["CONFIG", "SET", "appendonly", "yes"]);
        check(&*link, &strict).await.unwrap();
        server.command(&["CONFIG", "SET", "maxmemory", "1gb"]);
        server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        let error = Error::from(check(&*link, &strict).await.unwrap_err());
        assert!(error.message().contains("allkeys-lru"), "{error}");

        // Who may ask nothing is told nothing.
        let few = strict.clone().with_login("few", "pw");
        let (link, _) = open(&plain(&server).with_login("few", "pw")).await;
        check(&*link, &few).await.unwrap();
    }
}
