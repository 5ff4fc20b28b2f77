//! Rights that are missed late: after the first locks have worked.

use lock_core::HealthCheck;
use redis::{Value, cmd};

use crate::config::{RedisConfig, Servers};
use crate::error::{Failure, Refusal};
use crate::reply;
use crate::topology::Topology;

/// Tries what a lock needs only under contention or for a replica.
pub(super) async fn checks(
    topology: &dyn Topology,
    config: &RedisConfig,
) -> Result<Vec<HealthCheck>, Failure> {
    let mut checks = Vec::new();
    if config.replica_acks > 0 {
        let mut wait = cmd("WAIT");
        wait.arg(0).arg(1);
        match topology.broadcast(&wait).await {
            Err(failure) if failure.refusal() == Some(Refusal::NoPerm) => {
                checks.push(HealthCheck::error(
                    "rights",
                    "this user may not run WAIT",
                    "nothing can be acquired with min-replica-acks",
                    "give the user +wait",
                ));
            }
            Err(failure) if failure.refusal().is_none() => return Err(failure),
            _ => {}
        }
    }
    if !matches!(config.servers, Servers::Quorum(_)) {
        let push = match config.push && config.resp3 {
            true => Some(push(topology).await?),
            false => None,
        };
        checks.push(of_push(push));
    }
    Ok(checks)
}

/// Whether waiters can be notified of a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Push {
    Denied,
    Heard,
    NotKnown,
    /// A server or a proxy on the path lacks RESP3.
    Unsupported,
}

async fn push(topology: &dyn Topology) -> Result<Push, Failure> {
    match topology.channel().await {
        Ok(Some(_)) => return Ok(Push::Heard),
        Ok(None) => {}
        // A cluster may be in no state to tell.
        Err(failure) if failure.refusal().is_some() => return Ok(Push::NotKnown),
        Err(failure) => return Err(failure),
    }
    let hello = topology.broadcast(&cmd("HELLO")).await;
    let speaks = |reply: &Value, version: i64| match reply {
        Value::Map(fields) => fields.iter().any(|(name, value)| {
            reply::text(name) == Some("proto") && *value == Value::Int(version)
        }),
        _ => false,
    };
    Ok(match hello {
        Ok(replies) if replies.iter().all(|node| speaks(&node.value, 3)) => Push::Denied,
        Err(failure) if failure.refusal() == Some(Refusal::NoPerm) => Push::Denied,
        Ok(_) | Err(_) => Push::Unsupported,
    })
}

/// `None` where the configuration wants polling.
fn of_push(push: Option<Push>) -> HealthCheck {
    const POLLS: &str = "waiters poll instead of being notified";
    match push {
        None => HealthCheck::ok("push", "waiters poll, as configured"),
        Some(Push::Heard) => HealthCheck::ok("push", "waiters are notified of a grant"),
        Some(Push::NotKnown) => {
            HealthCheck::not_checked("push", "no channel could be subscribed to")
        }
        Some(Push::Denied) => HealthCheck::warning(
            "push",
            "this user may not subscribe to the channels polylock:*, or not publish there",
            POLLS,
            "give the user +subscribe +publish &polylock:*",
        ),
        Some(Push::Unsupported) => HealthCheck::warning(
            "push",
            "the server, or a proxy before it, does not support RESP3",
            POLLS,
            "connect to Redis 6.0 or later without a proxy that is limited to RESP2",
        ),
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Status;

    use super::*;

    #[test]
    fn only_push_that_is_wanted_and_missing_is_a_fault() {
        for (push, status) in [
            (None, Status::Ok),
            (Some(Push::Heard), Status::Ok),
            (Some(Push::NotKnown), Status::NotChecked),
            (Some(Push::Denied), Status::Warning),
            (Some(Push::Unsupported), Status::Warning),
        ] {
            assert_eq!(of_push(push).status, status, "{push:?}");
        }
    }
}
