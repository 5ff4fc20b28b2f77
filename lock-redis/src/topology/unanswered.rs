use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::contract::Call;
use super::request;
use crate::error::Refusal;
use polylock_core::engine::before;

/// The connection of a request that was sent and has no answer.
///
/// A server executes the requests of one connection in their order. What is sent on this one arrives
/// behind the request, although other requests use another connection by now.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<Option<Box<MultiplexedConnection>>>);

impl Unanswered {
    pub(super) fn keep(&self, connection: MultiplexedConnection) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(Box::new(connection));
    }

    pub(crate) fn take(&self) -> Self {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Self(Mutex::new(kept.take()))
    }

    /// Runs a script behind the request; nothing if there is no such connection, or it does not answer
    /// `within` the time.
    pub(crate) async fn run_behind(self, call: Call<'_>, within: Duration) {
        let connection = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(mut connection) = connection else {
            return;
        };
        let run = async {
            let request = request::by_hash(call);
            let answer = connection.send_packed_command(&request).await;
            if let Ok(Value::ServerError(error)) = answer
                && Refusal::of(&error) == Refusal::NoScript
            {
                drop(
                    connection
                        .send_packed_command(&request::by_text(call))
                        .await,
                );
            }
        };
        before(Instant::now() + within, run).await;
    }
}

/// Keeps the connection of a request unless it is answered.
pub(super) struct Sent<'a> {
    pub(super) redis: MultiplexedConnection,
    pub(super) unanswered: Option<&'a Unanswered>,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if let Some(unanswered) = self.unanswered {
            unanswered.keep(self.redis.clone());
        }
    }
}
