use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::driver::SocketState;
use super::request;
use crate::error::Refusal;
use crate::locked;
use crate::script::Script;
use polylock_core::engine::before;

/// The connection of a request without a reply.
///
/// A server executes the requests of one connection in order. A request sent on this one arrives behind
/// the first, although other requests already use another connection.
///
/// Keeps the socket open until the lease is released, at most one for each lease. A connection that was given
/// up has no other owner: with a weak reference, its socket would be closed, and a copy in flight could
/// acquire the lock after its release.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<Kept>);

/// Boxed: few requests have no answer.
type Kept = Option<Box<(MultiplexedConnection, Arc<SocketState>)>>;

impl Unanswered {
    pub(super) fn keep(&self, connection: MultiplexedConnection, life: Arc<SocketState>) {
        *locked(&self.0) = Some(Box::new((connection, life)));
    }

    pub(crate) fn take(&self) -> Self {
        Self(Mutex::new(locked(&self.0).take()))
    }

    /// Runs a script behind the request. Does nothing without such a connection, and waits for a reply
    /// at most `within`.
    pub(crate) async fn run_behind(
        &self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        within: Duration,
    ) {
        let Some((mut redis, _life)) = locked(&self.0).take().map(|kept| *kept) else {
            return;
        };
        let run = async {
            let by_hash = request::by_hash(script, keys, args);
            let answer = redis.send_packed_command(&by_hash).await;
            if let Ok(Value::ServerError(error)) = answer
                && Refusal::of(&error) == Refusal::NoScript
            {
                let by_text = request::by_text(script, keys, args);
                drop(redis.send_packed_command(&by_text).await);
            }
        };
        before(Instant::now() + within, run).await;
    }
}
