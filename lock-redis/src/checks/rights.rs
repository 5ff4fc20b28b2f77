//! What the user may do, found out by doing it.

use lock_core::Finding;
use redis::{ServerError, Value, cmd};

use crate::config::{RedisConfig, Servers};
use crate::error::{Cause, Failure, Refusal};
use crate::keys::Keys;
use crate::link::{Call, Link};
use crate::reply;
use crate::script::EXAMINE;

/// What happened when each was tried.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Tried {
    /// Commands of the scripts that failed, and why.
    pub(super) failed: Vec<(String, Refusal)>,
    /// Why a script did not begin.
    pub(super) refused: Vec<(Refused, Refusal)>,
    pub(super) push: Option<Push>,
    /// Whether `WAIT` is denied.
    pub(super) no_wait: bool,
}

/// What a script was refused for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    Command,
    Keys,
    Other,
}

/// Whether a grant can be told to who waits for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Push {
    Denied,
    Heard,
    /// The way to the server knows no RESP3.
    Impossible,
}

/// Runs what locks need with each of these keys, which nobody uses and which are gone afterwards.
pub(super) async fn tried(
    link: &dyn Link,
    config: &RedisConfig,
    keys: &[Keys],
) -> Result<Tried, Failure> {
    let mut tried = Tried::default();
    for keys in keys {
        let call = Call {
            script: &EXAMINE,
            keys: &keys.all(),
            args: &[],
        };
        match link.call(call).await {
            Ok(answer) => tried.failed.extend(read(&answer)?),
            Err(failure) => match failure.refusal() {
                Some(refusal) => tried.refused.push((refused(&failure), refusal)),
                None => return Err(failure),
            },
        }
    }
    if config.push && config.resp3 {
        tried.push = push(link).await?;
    }
    if config.replica_acks > 0 {
        let mut wait = cmd("WAIT");
        wait.arg(0).arg(1);
        tried.no_wait = is_denied(link.on_each_master(&wait).await)?;
    }
    Ok(tried)
}

fn read(answer: &Value) -> Result<Vec<(String, Refusal)>, Failure> {
    let Value::Array(words) = answer else {
        return Err(reply::strange(answer));
    };
    let pairs = words.chunks(2).map(|pair| {
        let [command, error] = pair else {
            return Err(reply::strange(answer));
        };
        let texts = (reply::text(command), reply::text(error));
        let (Some(command), Some(error)) = texts else {
            return Err(reply::strange(answer));
        };
        Ok((command.to_ascii_lowercase(), refusal(error)))
    });
    pairs.collect()
}

/// Reads an error as a script sees it, with or without the sign that begins it.
fn refusal(error: &str) -> Refusal {
    let line: String = error.chars().filter(|c| !c.is_control()).collect();
    let reply = format!("-{}\r\n", line.trim_start_matches('-'));
    match redis::parse_redis_value(reply.as_bytes()) {
        Ok(Value::ServerError(error)) => Refusal::of(&error),
        _ => Refusal::Other,
    }
}

/// What the server says that a user may not have.
fn refused(failure: &Failure) -> Refused {
    let Cause::Refused {
        refusal: Refusal::NoPerm,
        source,
        ..
    } = &failure.cause
    else {
        return Refused::Other;
    };
    let details = source
        .downcast_ref::<ServerError>()
        .and_then(ServerError::details);
    if details.is_some_and(|details| details.contains("run the '")) {
        Refused::Command
    } else {
        Refused::Keys
    }
}

async fn push(link: &dyn Link) -> Result<Option<Push>, Failure> {
    match link.channel().await {
        Ok(Some(_)) => return Ok(Some(Push::Heard)),
        Ok(None) => {}
        // A cluster may be in no state to say.
        Err(failure) if failure.refusal().is_some() => return Ok(None),
        Err(failure) => return Err(failure),
    }
    let hello = link.on_each_master(&cmd("HELLO")).await;
    let speaks = |answer: &Value, version: i64| match answer {
        Value::Map(fields) => fields.iter().any(|(name, value)| {
            reply::text(name) == Some("proto") && *value == Value::Int(version)
        }),
        _ => false,
    };
    let is_three = hello.is_ok_and(|said| said.iter().all(|said| speaks(&said.value, 3)));
    Ok(Some(if is_three {
        Push::Denied
    } else {
        Push::Impossible
    }))
}

fn is_denied<T>(outcome: Result<T, Failure>) -> Result<bool, Failure> {
    match outcome {
        Ok(_) => Ok(false),
        Err(failure) if failure.refusal().is_some() => {
            Ok(failure.refusal() == Some(Refusal::NoPerm))
        }
        Err(failure) => Err(failure),
    }
}

/// What that shows.
pub(super) fn findings(tried: &Tried, config: &RedisConfig, namespace: &str) -> Vec<Finding> {
    let mut found = rights(tried, namespace);
    if found.is_empty() {
        found.push(Finding::good(
            "rights",
            "this user may do all that locks need",
        ));
    }
    let failed = tried.failed.iter().map(|(_, refusal)| *refusal);
    let refused = tried.refused.iter().map(|(_, refusal)| *refusal);
    let mut others: Vec<Refusal> = Vec::new();
    for refusal in failed.chain(refused) {
        if refusal != Refusal::NoPerm && !others.contains(&refusal) {
            others.push(refusal);
        }
    }
    if others.is_empty() {
        if tried.refused.is_empty() {
            found.push(Finding::good(
                "scripts",
                "the server runs scripts that write",
            ));
        } else {
            found.push(Finding::unknown("scripts", "none may be run by this user"));
        }
    }
    found.extend(others.into_iter().map(trouble));
    if !matches!(config.servers, Servers::Quorum(_)) {
        found.push(push_of(tried, config));
    }
    found
}

fn push_of(tried: &Tried, config: &RedisConfig) -> Finding {
    let is_wanted = config.push && config.resp3;
    match tried.push {
        Some(Push::Impossible) => Finding::warning(
            "push",
            "the server, or a proxy before it, knows no RESP3",
            "waiters ask again and again instead of being told",
            "let clients reach Redis 6.0 or later without a proxy that speaks RESP2 only",
        ),
        Some(Push::Heard) => Finding::good("push", "waiters are told when it is their turn"),
        Some(Push::Denied) | None if is_wanted => {
            Finding::unknown("push", "nothing could be subscribed to")
        }
        Some(Push::Denied) | None => Finding::good(
            "push",
            "waiters ask again and again, as they are configured to",
        ),
    }
}

fn rights(tried: &Tried, namespace: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let is = |what: Refused| tried.refused.contains(&(what, Refusal::NoPerm));
    if is(Refused::Command) {
        found.push(Finding::error(
            "rights",
            "this user may not run EVALSHA or EVAL",
            "every lock is taken by a script",
            "give the user +evalsha and +eval, and what docs/backends/redis.md lists besides",
        ));
    }
    if is(Refused::Keys) {
        let prefix = match namespace {
            "" => String::new(),
            _ => format!("{namespace}:"),
        };
        found.push(Finding::error(
            "rights",
            format!("this user may not use the keys of locks, which begin with {prefix:?}"),
            "nothing can be acquired",
            format!("give the user ~{prefix}* ~{{{prefix}* ~{{*}}:{{{prefix}*"),
        ));
    }
    let mut denied: Vec<&str> = Vec::new();
    for (command, refusal) in &tried.failed {
        if *refusal == Refusal::NoPerm && !denied.contains(&command.as_str()) {
            denied.push(command);
        }
    }
    if tried.no_wait {
        denied.push("wait");
    }
    if !denied.is_empty() {
        found.push(Finding::error(
            "rights",
            format!("this user may not run {}", denied.join(", ")),
            "locks that come to need it are refused",
            format!("give the user +{}", denied.join(" +")),
        ));
    }
    if tried.push == Some(Push::Denied) {
        found.push(Finding::warning(
            "rights",
            "this user may not subscribe to the channels polylock:*, or not publish there",
            "waiters ask again and again instead of being told",
            "give the user +subscribe +publish &polylock:*",
        ));
    }
    found
}

/// Why a script that tried to write could not.
fn trouble(refusal: Refusal) -> Finding {
    let what = format!("the server {refusal}");
    let error = |check, way_out: &'static str| {
        Finding::error(check, what.clone(), "nothing can be acquired", way_out)
    };
    match refusal {
        Refusal::ClusterDown => error("cluster", "see CLUSTER INFO and CLUSTER NODES"),
        Refusal::Full => error("memory", "raise maxmemory or remove data"),
        Refusal::Misconf => error("persistence", "see the log of the server"),
        Refusal::Moved | Refusal::CrossSlot => error("cluster", "use redis-cluster://"),
        Refusal::NoReplicas => error(
            "replication",
            "connect replicas, or lower min-replicas-to-write",
        ),
        Refusal::ReadOnly | Refusal::MasterDown => {
            error("replica", "name its master, or the Sentinels that know it")
        }
        _ => error(
            "scripts",
            "see what the server answers to EVAL \"return 1\" 0",
        ),
    }
}
