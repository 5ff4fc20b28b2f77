use std::fmt;
use std::mem::{replace, take};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::{RedisConnection, RedisSocket};
use super::unanswered::Unanswered;
use crate::error::RedisFailure;
use crate::locked;
use polylock_core::engine::before;

/// Calls of any tasks that wait for replicas on one connection.
///
/// `WAIT` blocks its connection. So only one is under way, and the calls that come meanwhile are sent together, with
/// one `WAIT` behind all of them. A task of the runtime sends them, because their callers may give up.
#[derive(Default)]
pub(super) struct WaitQueue(Mutex<QueuedCalls>);

#[derive(Default)]
struct QueuedCalls {
    calls: Vec<QueuedCall>,
    /// Whether a task sends them.
    is_served: bool,
}

struct QueuedCall {
    requests: Pipeline,
    deadline: Instant,
    state: Arc<Mutex<CallState>>,
    reply: oneshot::Sender<Result<Vec<Value>, RedisFailure>>,
}

/// A call is either given up before it is sent, or sent.
#[derive(Default)]
enum CallState {
    #[default]
    Queued,
    GivenUp,
    Sent(RedisSocket),
}

impl WaitQueue {
    /// Sends requests together with those of other calls. Returns their replies, and last that to the `WAIT`.
    ///
    /// # Cancel safety
    ///
    /// Requests that were not sent yet are not sent any more. For others, the connection is kept in `unanswered`.
    pub(super) async fn run_all(
        &self,
        connection: &Arc<RedisConnection>,
        requests: Pipeline,
        wait: Cmd,
        deadline: Instant,
        unanswered: Option<&Unanswered>,
    ) -> Result<Vec<Value>, RedisFailure> {
        let (reply, replies) = oneshot::channel();
        let state = Arc::<Mutex<CallState>>::default();
        let mut caller = Caller {
            state: Arc::clone(&state),
            unanswered,
        };
        let call = QueuedCall {
            requests,
            deadline,
            state,
            reply,
        };
        if self.join(call) {
            drop(tokio::spawn(serve(Arc::clone(connection), wait)));
        }
        match before(deadline, replies).await {
            Some(Ok(replies)) => {
                caller.unanswered = None;
                replies
            }
            // Without a reply, also if the task has ended with its runtime.
            Some(Err(_)) | None => Err(connection.silent(caller.gives_up())),
        }
    }

    /// Adds a call; true if a task has to be started that sends it.
    fn join(&self, call: QueuedCall) -> bool {
        let mut waiting = locked(&self.0);
        waiting.calls.push(call);
        !replace(&mut waiting.is_served, true)
    }

    /// The calls to send. If there are none, the next one needs another task.
    fn next(&self) -> Vec<QueuedCall> {
        let mut waiting = locked(&self.0);
        waiting.is_served = !waiting.calls.is_empty();
        take(&mut waiting.calls)
    }
}

/// Sends calls for as long as there are any.
async fn serve(connection: Arc<RedisConnection>, wait: Cmd) {
    let mut serving = QueueServer(Some(connection));
    while let Some(connection) = &serving.0 {
        let calls = connection.waits.next();
        if calls.is_empty() {
            serving.0 = None;
            return;
        }
        send(connection, calls, wait.clone()).await;
    }
}

/// A task that serves a queue. If it ends early, the calls that are left have no reply, and the next one needs
/// another task.
struct QueueServer(Option<Arc<RedisConnection>>);

impl Drop for QueueServer {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            let left = take(&mut *locked(&connection.waits.0));
            drop(left);
        }
    }
}

/// Sends calls together, and waits for their replies until all callers have given up.
async fn send(connection: &Arc<RedisConnection>, mut calls: Vec<QueuedCall>, wait: Cmd) {
    let Some(deadline) = calls.iter().map(|call| call.deadline).max() else {
        return;
    };
    let socket = match connection.socket(deadline).await {
        Ok(socket) => socket,
        Err(failure) => {
            for call in calls {
                // A caller that is gone needs no reply.
                call.reply.send(Err(failure.clone())).ok();
            }
            return;
        }
    };
    calls.retain(|call| call.begin(&socket));
    if calls.is_empty() {
        return;
    }
    let mut requests = Pipeline::new();
    for request in calls.iter().flat_map(|call| call.requests.cmd_iter()) {
        requests.add_command(request.clone());
    }
    requests.add_command(wait);
    let gone = join_all(calls.iter_mut().map(|call| call.reply.closed()));
    let answers = tokio::select! {
        answers = connection.run_all_on(socket, &requests, deadline, None) => answers,
        _ = gone => return,
    };
    let mut answers = answers.map(Vec::into_iter);
    let acks = answers.as_mut().map(DoubleEndedIterator::next_back);
    let acks = acks.ok().flatten();
    for QueuedCall {
        requests, reply, ..
    } in calls
    {
        let own = match &mut answers {
            Ok(answers) => {
                let own = answers.by_ref().take(requests.len());
                Ok(own.chain(acks.clone()).collect())
            }
            Err(failure) => Err(failure.clone()),
        };
        reply.send(own).ok();
    }
}

impl QueuedCall {
    /// Notes that the call is sent now; false if its caller has given up.
    fn begin(&self, socket: &RedisSocket) -> bool {
        let mut state = locked(&self.state);
        let is_wanted = matches!(*state, CallState::Queued);
        if is_wanted {
            *state = CallState::Sent(socket.clone());
        }
        is_wanted
    }
}

/// The caller of a queued call.
struct Caller<'a> {
    state: Arc<Mutex<CallState>>,
    /// `None` once there is a reply.
    unanswered: Option<&'a Unanswered>,
}

impl Caller<'_> {
    /// Gives the call up; returns whether it was sent.
    fn gives_up(&self) -> bool {
        let former = replace(&mut *locked(&self.state), CallState::GivenUp);
        let CallState::Sent(socket) = former else {
            return false;
        };
        if let Some(unanswered) = self.unanswered {
            socket.keep_in(unanswered);
        }
        true
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.gives_up();
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue").finish_non_exhaustive()
    }
}
