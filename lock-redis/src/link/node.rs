use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::dial::Dial;
use super::lane::Lane;
use super::shared::Shared;
use super::witness::witness;
use super::{Call, request};
use crate::error::{Cause, Failure, Refusal};

/// One server.
pub(super) struct Node {
    dial: Arc<Dial>,
    shared: Arc<Shared>,
    lanes: Arc<RwLock<HashMap<(Id, Use), Arc<Lane>>>>,
}

/// `WAIT` holds up whatever comes behind it, so calls that wait have a connection to themselves.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Use {
    Calls,
    Waits,
}

impl Node {
    pub(super) fn new(dial: Dial, shared: Arc<Shared>) -> Self {
        Self {
            dial: Arc::new(dial),
            shared,
            lanes: Arc::default(),
        }
    }

    pub(super) fn server(&self) -> &Arc<str> {
        &self.dial.server
    }

    /// Connects, unless there is a connection.
    pub(super) async fn open(&self) -> Result<(), Failure> {
        self.lane(Use::Calls).ready(self.shared.deadline()).await
    }

    pub(super) async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<Value, Failure> {
        let lane = self.lane(Use::Calls);
        match lane.run(&request::by_hash(call), deadline).await {
            Err(failure) if failure.refusal() == Some(Refusal::NoScript) => {
                lane.run(&request::by_text(call), deadline).await
            }
            outcome => outcome,
        }
    }

    pub(super) async fn call_and_wait(
        &self,
        call: Call<'_>,
        acks: u32,
        within: Duration,
        deadline: Instant,
    ) -> Result<(Value, u32), Failure> {
        let lane = self.lane(Use::Waits);
        match self
            .run_and_wait(&lane, request::by_hash(call), acks, within, deadline)
            .await
        {
            Err(failure) if failure.refusal() == Some(Refusal::NoScript) => {
                let request = request::by_text(call);
                self.run_and_wait(&lane, request, acks, within, deadline)
                    .await
            }
            outcome => outcome,
        }
    }

    pub(super) async fn run(&self, request: &Cmd) -> Result<Value, Failure> {
        let deadline = self.shared.deadline();
        self.lane(Use::Calls).run(request, deadline).await
    }

    pub(super) async fn channel(&self, deadline: Instant) -> Result<Option<Arc<str>>, Failure> {
        if !self.shared.push {
            return Ok(None);
        }
        let lane = self.lane(Use::Calls);
        let listens = lane.listen(deadline).await?;
        Ok(listens.then(|| Arc::clone(lane.channel())))
    }

    /// The channel, if it is heard already.
    pub(super) fn subscribed(&self) -> Option<Arc<str>> {
        let lane = self.lane(Use::Calls);
        lane.is_heard().then(|| Arc::clone(lane.channel()))
    }

    /// Closes the connections; the next call makes others.
    pub(super) fn hang_up(&self) {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        let lanes: Vec<_> = lanes.values().cloned().collect();
        lanes.iter().for_each(|lane| lane.hang_up());
    }

    async fn run_and_wait(
        &self,
        lane: &Arc<Lane>,
        request: Cmd,
        acks: u32,
        within: Duration,
        deadline: Instant,
    ) -> Result<(Value, u32), Failure> {
        let mut requests = Pipeline::with_capacity(2);
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
        requests.add_command(request);
        requests.cmd("WAIT").arg(acks).arg(millis);
        let answers = lane.run_all(&requests, deadline + within).await?;
        let malformed = || {
            let (server, what) = (Arc::clone(self.server()), "WAIT".to_owned());
            Failure {
                cause: Cause::Malformed { server, what },
                outcome_unknown: true,
            }
        };
        let [value, replicas] = <[Value; 2]>::try_from(answers).map_err(|_| malformed())?;
        match (value, replicas) {
            (Value::ServerError(error), _) => Err(Failure::refused(self.server(), error)),
            (value, Value::Int(replicas)) => Ok((value, u32::try_from(replicas).unwrap_or(0))),
            // The script has run.
            (_, Value::ServerError(error)) => Err(Failure {
                outcome_unknown: true,
                ..Failure::refused(self.server(), error)
            }),
            _ => Err(malformed()),
        }
    }

    fn lane(&self, used: Use) -> Arc<Lane> {
        let runtime = Handle::current();
        let at = (runtime.id(), used);
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&at) {
            return Arc::clone(lane);
        }
        drop(lanes);
        self.add_lane(runtime, at)
    }

    fn add_lane(&self, runtime: Handle, at: (Id, Use)) -> Arc<Lane> {
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(at).or_insert_with(|| {
            let (dial, shared) = (Arc::clone(&self.dial), Arc::clone(&self.shared));
            Arc::new(Lane::new(dial, shared, runtime.clone()))
        });
        let lane = Arc::clone(lane);
        drop(lanes);
        // Outside the lock: on a runtime that is over already, this ends at once.
        lane.witness.get_or_init(|| {
            let lanes = Arc::downgrade(&self.lanes);
            witness(&runtime, move || {
                if let Some(lanes) = lanes.upgrade() {
                    let removed = lanes
                        .write()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(&at);
                    drop(removed);
                }
            })
        });
        lane
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.dial.server).finish()
    }
}
