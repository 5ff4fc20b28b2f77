use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use redis::{Pipeline, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::call::ReplicaWait;
use super::connection::RedisConnection;
use super::request;
use crate::error::{RedisCause, RedisFailure};
use crate::locked;
use polylock_core::engine::before;

/// Calls of one task that share their `WAIT` at each server.
///
/// `WAIT` blocks its connection: with one for each call, many calls would queue behind each other's. One behind all
/// of them covers the writes of all.
///
/// The first call to a server sends those that have joined. So all calls must end at the same time: if the first one
/// is dropped, the outcome of the others is unknown.
#[derive(Default)]
pub(crate) struct WaitBatch(Mutex<HashMap<Arc<str>, OpenBatch>>);

/// What will be sent to a server.
#[derive(Default)]
struct OpenBatch {
    requests: Pipeline,
    /// How many requests each call has, and where their replies go.
    calls: Vec<(usize, BatchReplySender)>,
}

type BatchReplySender = oneshot::Sender<Result<Vec<Value>, RedisFailure>>;

impl WaitBatch {
    /// Sends requests together with those of other calls. Returns their replies, and last that to the `WAIT`.
    pub(super) async fn run_all(
        &self,
        connection: &Arc<RedisConnection>,
        requests: &Pipeline,
        wait: ReplicaWait,
        deadline: Instant,
    ) -> Result<Vec<Value>, RedisFailure> {
        let (reply, replies) = oneshot::channel();
        if self.join(connection.server(), requests, reply) {
            // The task polls its other calls first.
            yield_now().await;
            self.send(connection, wait, deadline).await;
        }
        match before(deadline, replies).await {
            Some(Ok(replies)) => replies,
            // The call that has sent it was dropped: the time of the round is over.
            Some(Err(_)) => Err(RedisCause::LateRenewal.unknown()),
            None => Err(connection.silent(true)),
        }
    }

    /// Adds a call; true if it is the first one to this server.
    fn join(&self, server: &Arc<str>, requests: &Pipeline, reply: BatchReplySender) -> bool {
        let mut open = locked(&self.0);
        let batch = open.entry(Arc::clone(server)).or_default();
        for request in requests.cmd_iter() {
            batch.requests.add_command(request.clone());
        }
        batch.calls.push((requests.len(), reply));
        batch.calls.len() == 1
    }

    /// Sends what has joined. Later calls to this server start another batch.
    async fn send(&self, connection: &Arc<RedisConnection>, wait: ReplicaWait, deadline: Instant) {
        let Some(mut batch) = locked(&self.0).remove(connection.server()) else {
            return;
        };
        batch.requests.add_command(request::wait(wait));
        let answers = connection.run_all(&batch.requests, deadline, None).await;
        let mut answers = answers.map(Vec::into_iter);
        let acks = answers.as_mut().map(DoubleEndedIterator::next_back);
        let acks = acks.ok().flatten();
        for (count, reply) in batch.calls {
            let own = match &mut answers {
                Ok(answers) => Ok(answers.by_ref().take(count).chain(acks.clone()).collect()),
                Err(failure) => Err(failure.clone()),
            };
            // A call that has ended needs none.
            reply.send(own).ok();
        }
    }
}

impl fmt::Debug for WaitBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitBatch").finish_non_exhaustive()
    }
}
