//! Parses the replies of the scripts.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::{LeaseState, LostReason};
use redis::Value;

use crate::error::{RedisCause, RedisFailure, Refusal};

/// A place in the queue: the id of an entry of its stream.
pub(crate) type QueueTicket = Arc<str>;

/// The reply of the server to an acquisition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AcquireReply {
    /// With this token.
    Granted(u64),
    /// The place in the queue is gone: the lock was granted and the lease has ended since, or the waiter
    /// was dropped for late heartbeats.
    Gone,
    Held,
    Queued {
        /// When the lock may come free by expiry alone; set for the first waiter.
        next: Option<Duration>,
        ticket: QueueTicket,
    },
}

/// Reads the answer to an acquisition.
pub(crate) fn answer(reply: &Value) -> Result<AcquireReply, RedisFailure> {
    let Value::Array(parts) = reply else {
        return token(reply).map(AcquireReply::Granted);
    };
    let answer = match (parts.first().and_then(text), &parts[..]) {
        (Some("gone"), _) => Some(AcquireReply::Gone),
        (Some("held"), _) => Some(AcquireReply::Held),
        (Some("queued"), [_, Value::Int(next), ticket]) => {
            read_ticket(ticket).map(|ticket| AcquireReply::Queued {
                next: u64::try_from(*next).ok().map(Duration::from_millis),
                ticket,
            })
        }
        _ => None,
    };
    answer.ok_or_else(|| strange(reply))
}

/// The result of the plain commands that acquire a free lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlainReply {
    /// With this token.
    Granted(u64),
    /// By another client.
    Held,
    /// Nothing reliable: a script has to find out.
    Unknown,
    /// Held under this id without a token, or that is unknown: a script has to draw one.
    WithoutToken,
}

/// Reads the replies to the plain commands that acquire a lock for this id.
pub(crate) fn taken(reply: &Value, id: &[u8]) -> PlainReply {
    let Value::Array(answers) = reply else {
        return PlainReply::Unknown;
    };
    match answers.as_slice() {
        [_, token, Value::BulkString(holder)] if holder == id => {
            drawn(token).map_or(PlainReply::WithoutToken, PlainReply::Granted)
        }
        // Its copy may come later.
        [Value::ServerError(error), ..] if Refusal::of(error).is_outcome_unknown(error) => {
            PlainReply::WithoutToken
        }
        [_, _, Value::BulkString(holder)] if !holder.is_empty() => PlainReply::Held,
        // Whether it is still held is unknown.
        [Value::Okay, _, Value::ServerError(_)] => PlainReply::WithoutToken,
        _ => PlainReply::Unknown,
    }
}

/// Reads the reply to a plain command that joins a queue; `None` if there is no queue.
pub(crate) fn joined(reply: &Value) -> Result<Option<QueueTicket>, RedisFailure> {
    optional(reply, |ticket| {
        read_ticket(ticket).ok_or_else(|| strange(ticket))
    })
}

fn read_ticket(value: &Value) -> Option<QueueTicket> {
    let id = text(value)?;
    let is_number = |part: &str| part.parse::<u64>().is_ok();
    let (ms, number) = id.split_once('-')?;
    (is_number(ms) && is_number(number)).then(|| id.into())
}

/// Reads the time of a server that refuses a request as too late, in milliseconds.
pub(crate) fn late(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    match parts.as_slice() {
        [word, Value::Int(now)] if text(word) == Some("late") => u64::try_from(*now).ok(),
        _ => None,
    }
}

/// Reads a fencing token.
pub(crate) fn token(reply: &Value) -> Result<u64, RedisFailure> {
    let token = match reply {
        Value::Int(token) => u64::try_from(*token).ok(),
        _ => None,
    };
    token
        .filter(|token| is_token(*token))
        .ok_or_else(|| strange(reply))
}

/// Whether a script can count on from it: the numbers of Lua are exact up to 2^53, which are microseconds until
/// the year 2255. Another program has written what is beyond.
pub(crate) fn is_token(token: u64) -> bool {
    (1..1 << 53).contains(&token)
}

/// Reads a fencing token as `XADD` gives it, `<ms>-<number>`.
fn drawn(reply: &Value) -> Option<u64> {
    let (ms, number) = text(reply)?.split_once('-')?;
    let (ms, number): (u64, u64) = (ms.parse().ok()?, number.parse().ok()?);
    // A larger number would equal a token of the next millisecond.
    let number = Some(number).filter(|number| *number < 1_000)?;
    let token = ms.checked_mul(1_000)?.checked_add(number)?;
    is_token(token).then_some(token)
}

/// The state of a lease, or why it is unknown.
pub(crate) type LeaseReply = Result<LeaseState, RedisFailure>;

/// Reads the states of `count` leases; each may be an error of the server.
pub(crate) fn lease_states(
    reply: &Value,
    count: usize,
    server: &Arc<str>,
) -> Result<Vec<LeaseReply>, RedisFailure> {
    let read = |state: &Value| match state {
        Value::ServerError(error) => Ok(Err(RedisFailure::refused(server, error.clone())
            .cause
            .unknown())),
        state if wants_notes(state) => Ok(Ok(LeaseState::Held)),
        state => lease_state(state).map(Ok),
    };
    match reply {
        Value::Array(states) if states.len() == count => states.iter().map(read).collect(),
        reply => Err(strange(reply)),
    }
}

/// Whether the leases that were extended have notes that the caller should keep.
pub(crate) fn have_notes_to_keep(reply: &Value) -> bool {
    matches!(reply, Value::Array(states) if states.iter().any(wants_notes))
}

/// Whether the state of a lease says that it is held, and that its notes should be kept.
fn wants_notes(state: &Value) -> bool {
    text(state) == Some("notes")
}

/// Reads the state of a lease.
pub(crate) fn lease_state(reply: &Value) -> Result<LeaseState, RedisFailure> {
    match reply {
        Value::Int(0) => Ok(LeaseState::Lost(LostReason::Stolen)),
        Value::Int(1) => Ok(LeaseState::Held),
        Value::Int(2) => Ok(LeaseState::Lost(LostReason::Broken)),
        reply => Err(strange(reply)),
    }
}

/// Reads an optional value.
pub(crate) fn optional<T>(
    reply: &Value,
    read: impl FnOnce(&Value) -> Result<T, RedisFailure>,
) -> Result<Option<T>, RedisFailure> {
    match reply {
        Value::Nil | Value::Boolean(false) => Ok(None),
        reply => read(reply).map(Some),
    }
}

/// A lock as the server knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SeenLock {
    pub(crate) mode: String,
    pub(crate) holders: Vec<SeenHolder>,
    /// The counter of tokens; in a quorum `<last token>|<id of the last grant>`.
    pub(crate) fence: String,
    /// The labels of the waiters, in order.
    pub(crate) waiters: Vec<String>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SeenHolder {
    /// `<id>|<label>` of one holder, with `|<token>|<since (ms)>` if the server knows them; any text if
    /// another program acquired the lock; the id of one of several holders.
    pub(crate) value: String,
    /// Milliseconds until the lease ends; negative if it never does.
    pub(crate) left: i64,
    /// `<token>|<label>` of one of several holders.
    pub(crate) note: String,
}

/// Reads a lock as `inspect` shows it.
pub(crate) fn seen(reply: &Value) -> Result<SeenLock, RedisFailure> {
    let read = || {
        let Value::Array(parts) = reply else {
            return None;
        };
        let [mode, Value::Array(holders), fence, Value::Array(waiters)] = parts.as_slice() else {
            return None;
        };
        let holder = |triple: &[Value]| {
            let [value, Value::Int(left), note] = triple else {
                return None;
            };
            Some(SeenHolder {
                value: lossy(value)?,
                left: *left,
                note: lossy(note)?,
            })
        };
        Some(SeenLock {
            mode: lossy(mode)?,
            holders: holders.chunks(3).map(holder).collect::<Option<_>>()?,
            fence: lossy(fence).unwrap_or_default(),
            waiters: waiters.iter().map(lossy).collect::<Option<_>>()?,
        })
    };
    read().ok_or_else(|| strange(reply))
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn lossy(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// An error for a reply that is none of these scripts'. The request may still have been executed.
pub(crate) fn strange(reply: &Value) -> RedisFailure {
    let kind = match reply {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        Value::Array(_) => "a list of another shape",
        _ => "a value of an unexpected type",
    };
    RedisCause::malformed(&"the server".into(), kind).unknown()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn list(parts: &[Value]) -> Value {
        Value::Array(parts.to_vec())
    }

    #[test]
    fn reads_what_the_script_says() {
        let queued = |next| AcquireReply::Queued {
            next,
            ticket: "9-0".into(),
        };
        for (reply, expected) in [
            (Value::Int(7), AcquireReply::Granted(7)),
            (list(&[word("gone"), Value::Int(0)]), AcquireReply::Gone),
            (list(&[word("held"), Value::Int(-1)]), AcquireReply::Held),
            (
                list(&[word("queued"), Value::Int(12), word("9-0")]),
                queued(Some(Duration::from_millis(12))),
            ),
            (
                list(&[word("queued"), Value::Int(-1), word("9-0")]),
                queued(None),
            ),
        ] {
            assert_eq!(answer(&reply).unwrap(), expected);
        }
    }

    #[test]
    fn a_token_that_a_script_cannot_count_on_from_is_refused() {
        let read = |number: i64| token(&Value::Int(number)).ok();
        let last = (1 << 53) - 1;
        assert_eq!((read(1), read(last)), (Some(1), Some(last.unsigned_abs())));
        for number in [i64::MIN, -1, 0, last + 1, i64::MAX] {
            assert_eq!(read(number), None, "token {number}");
        }
    }

    #[test]
    fn reads_a_token_that_was_drawn() {
        for (reply, token) in [
            (word("1763900000000-0"), Some(1_763_900_000_000_000)),
            (word("1763900000000-31"), Some(1_763_900_000_000_031)),
            (word("1763900000000-999"), Some(1_763_900_000_000_999)),
            (word("1763900000000-1000"), None),
            (word("0-0"), None),
            (word("9007199254740-991"), Some((1 << 53) - 1)),
            (word("9007199254740-992"), None),
            (word("18446744073709551615-1"), None),
            (word("7"), None),
            (word("a-b"), None),
            (Value::Int(7), None),
        ] {
            assert_eq!(drawn(&reply), token, "{reply:?}");
        }
    }

    #[test]
    fn a_lock_that_a_proxy_may_have_acquired_is_in_doubt() {
        let error = |line: &str| redis::parse_redis_value(line.as_bytes()).expect("a reply");
        let unknown = error("-upstream failure\r\n");
        let refused = error("-MOVED 866 10.0.0.1:7001\r\n");
        for (set, shown, expected) in [
            (&unknown, word("id"), PlainReply::Granted(7_000)),
            (&unknown, word("other"), PlainReply::WithoutToken),
            (&unknown, unknown.clone(), PlainReply::WithoutToken),
            (&refused, word("other"), PlainReply::Held),
            (&refused, refused.clone(), PlainReply::Unknown),
        ] {
            let replies = list(&[set.clone(), word("7-0"), shown]);
            assert_eq!(taken(&replies, b"id"), expected, "{replies:?}");
        }
    }

    #[test]
    fn takes_nothing_else_for_an_answer() {
        for reply in [
            Value::Nil,
            Value::Okay,
            Value::Int(0),
            Value::Int(-1),
            word("1"),
            list(&[]),
            list(&[word("granted"), Value::Int(1)]),
            list(&[word("queued"), Value::Int(1)]),
            list(&[word("queued"), Value::Int(1), word("9")]),
            list(&[word("queued"), word("1"), word("9-0")]),
        ] {
            assert!(answer(&reply).is_err(), "{reply:?}");
        }
        assert_eq!(joined(&Value::Nil).unwrap(), None);
        assert_eq!(joined(&word("9-0")).unwrap().as_deref(), Some("9-0"));
        for reply in [Value::Int(7), word("9"), word("9-"), word("*")] {
            assert!(joined(&reply).is_err(), "{reply:?}");
        }
        assert_eq!(late(&list(&[word("late"), Value::Int(7)])), Some(7));
        for reply in [Value::Int(7), list(&[word("held"), Value::Int(7)])] {
            assert_eq!(late(&reply), None);
        }
        for reply in [list(&[Value::Int(3)]), list(&[]), Value::Int(1)] {
            let states = lease_states(&reply, 1, &"a:1".into());
            assert!(states.is_err(), "{reply:?}");
        }
        let (free, number) = (list(&[]), list(&[word("x"), word("7"), word("")]));
        for reply in [
            Value::Nil,
            list(&[word("x")]),
            list(&[word("x"), Value::Nil, Value::Nil, free.clone()]),
            list(&[word("x"), free.clone(), Value::Nil, Value::Nil]),
            list(&[Value::Nil, free.clone(), Value::Nil, free.clone()]),
            list(&[word("x"), number, Value::Nil, free]),
        ] {
            assert!(seen(&reply).is_err(), "{reply:?}");
        }
    }
}
