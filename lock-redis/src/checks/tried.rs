//! What the user may do, and the server does, found out by doing it.

use redis::{ServerError, Value, cmd};

use crate::config::RedisConfig;
use crate::error::{Cause, Failure, Refusal};
use crate::keys::Keys;
use crate::reply;
use crate::script::EXAMINE;
use crate::topology::{Call, Topology};

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
pub(super) async fn try_out(
    topology: &dyn Topology,
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
        match topology.call(call).await {
            Ok(answer) => tried.failed.extend(read(&answer)?),
            Err(failure) => match failure.refusal() {
                Some(refusal) => tried.refused.push((refused(&failure), refusal)),
                None => return Err(failure),
            },
        }
    }
    if config.push && config.resp3 {
        tried.push = push(topology).await?;
    }
    if config.replica_acks > 0 {
        let mut wait = cmd("WAIT");
        wait.arg(0).arg(1);
        tried.no_wait = is_denied(topology.broadcast(&wait).await)?;
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

async fn push(topology: &dyn Topology) -> Result<Option<Push>, Failure> {
    match topology.channel().await {
        Ok(Some(_)) => return Ok(Some(Push::Heard)),
        Ok(None) => {}
        // A cluster may be in no state to say.
        Err(failure) if failure.refusal().is_some() => return Ok(None),
        Err(failure) => return Err(failure),
    }
    let hello = topology.broadcast(&cmd("HELLO")).await;
    let speaks = |answer: &Value, version: i64| match answer {
        Value::Map(fields) => fields.iter().any(|(name, value)| {
            reply::text(name) == Some("proto") && *value == Value::Int(version)
        }),
        _ => false,
    };
    Ok(Some(match hello {
        Ok(said) if said.iter().all(|said| speaks(&said.value, 3)) => Push::Denied,
        Err(failure) if failure.refusal() == Some(Refusal::NoPerm) => Push::Denied,
        Ok(_) | Err(_) => Push::Impossible,
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
