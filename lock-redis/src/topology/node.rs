use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use redis::{Cmd, Pipeline, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::Connection;
use super::connector::Connector;
use super::context::ConnectionContext;
use super::contract::{Call, Done, NodeReply, Take, Taken};
use super::request;
use crate::error::{Cause, Failure, Refusal};

/// One server.
///
/// A free acquisition and a release use a connection of the caller's runtime: a hop to another
/// thread costs 5 us, and half of the throughput of many tasks. Waiters and renewals use the
/// engine's connection, which also receives the messages of the server.
pub(super) struct Node {
    connector: Arc<Connector>,
    shared: Arc<ConnectionContext>,
    /// Each belongs to a task of its runtime, and ends with it.
    connections: RwLock<Vec<Entry>>,
    /// Ends these tasks.
    end: watch::Sender<()>,
}

/// A connection of one runtime.
type Entry = ((Id, Use), Weak<Connection>);

/// What goes along with a script.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    /// Has a cluster node serve a slot that it is about to get.
    pub(super) asking: bool,
    /// How many replicas have to have what the script wrote, and how long they may take.
    pub(super) wait: Option<(u32, Duration)>,
}

/// `WAIT` holds up whatever comes behind it, so calls that wait have a connection to themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Calls,
    Waits,
}

impl Node {
    pub(super) fn new(connector: Connector, shared: Arc<ConnectionContext>) -> Self {
        Self {
            connector: Arc::new(connector),
            shared,
            connections: RwLock::default(),
            end: watch::Sender::new(()),
        }
    }

    pub(super) fn server(&self) -> &Arc<str> {
        &self.connector.server
    }

    /// Connects, unless there is a connection.
    pub(super) async fn open(&self) -> Result<(), Failure> {
        // The attempt ends by itself and says why; this is for one that waits for its turn.
        let within = self.shared.connect_timeout + self.shared.timeout;
        let deadline = Instant::now() + within;
        self.connection(Use::Calls).ready(deadline).await
    }

    pub(super) async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<Value, Failure> {
        let connection = self.connection(Use::Calls);
        match connection
            .run(&request::by_hash(call), deadline, call.unanswered)
            .await
        {
            Err(failure) if failure.refusal() == Some(Refusal::NoScript) => {
                Box::pin(connection.run(&request::by_text(call), deadline, call.unanswered)).await
            }
            outcome => outcome,
        }
    }

    /// Runs a script, and waits for replicas if it shall.
    pub(super) async fn call_with(
        &self,
        call: Call<'_>,
        wait: Option<(u32, Duration)>,
        deadline: Instant,
    ) -> Result<Done, Failure> {
        let extras = Extras {
            asking: false,
            wait,
        };
        let (value, acked) = self.call_between(call, extras, deadline).await?;
        Ok(Done {
            value,
            acked,
            server: Arc::clone(self.server()),
        })
    }

    /// Runs a script with what belongs before and behind it, in one go.
    pub(super) async fn call_between(
        &self,
        call: Call<'_>,
        extras: Extras,
        deadline: Instant,
    ) -> Result<(Value, u32), Failure> {
        if !extras.asking && extras.wait.is_none() {
            return Ok((self.call(call, deadline).await?, 0));
        }
        let request = request::by_hash(call);
        match self.run_with(request, call, extras, deadline).await {
            Err(failure) if failure.refusal() == Some(Refusal::NoScript) => {
                let request = request::by_text(call);
                self.run_with(request, call, extras, deadline).await
            }
            outcome => outcome,
        }
    }

    pub(super) async fn take(
        &self,
        take: Take<'_>,
        wait: Option<(u32, Duration)>,
        deadline: Instant,
    ) -> Result<(Taken, Done), Failure> {
        let connection = self.connection(wait.map_or(Use::Calls, |_| Use::Waits));
        let deadline = deadline + wait.map_or(Duration::ZERO, |(_, within)| within);
        let (taken, acked) = connection.take(take, wait, deadline).await?;
        let server = Arc::clone(self.server());
        let value = Value::Nil;
        Ok((
            taken,
            Done {
                value,
                acked,
                server,
            },
        ))
    }

    pub(super) async fn run(&self, request: &Cmd) -> Result<Value, Failure> {
        let deadline = self.shared.deadline();
        self.connection(Use::Calls)
            .run(request, deadline, None)
            .await
    }

    /// The same, with the server that replied and when.
    pub(super) async fn ask(&self, request: &Cmd) -> Result<NodeReply, Failure> {
        let (asked, sent) = (SystemTime::now(), Instant::now());
        let value = self.run(request).await?;
        Ok(NodeReply {
            server: Arc::clone(self.server()),
            value,
            asked,
            round: sent.elapsed(),
        })
    }

    pub(super) async fn channel(&self, deadline: Instant) -> Result<Option<Arc<str>>, Failure> {
        if !self.shared.push {
            return Ok(None);
        }
        self.shared.subscribe_on(Handle::current().id());
        let listens = match self.subscriber() {
            Some(connection) => connection.listen(deadline).await?,
            None => self.connection(Use::Calls).listen(deadline).await?,
        };
        Ok(listens.then(|| Arc::clone(self.shared.channel())))
    }

    /// The channel, if it is subscribed already.
    pub(super) fn subscribed(&self) -> Option<Arc<str>> {
        let is_heard = self
            .subscriber()
            .is_some_and(|connection| connection.is_heard());
        is_heard.then(|| Arc::clone(self.shared.channel()))
    }

    fn subscriber(&self) -> Option<Arc<Connection>> {
        self.known((self.shared.subscriber()?, Use::Calls))
    }

    /// Closes the connections; the next call makes others.
    pub(super) fn hang_up(&self) {
        let all = self.connections.read();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all.iter().filter_map(|(_, one)| one.upgrade()).collect();
        all.iter().for_each(|connection| connection.hang_up());
    }

    async fn run_with(
        &self,
        request: Cmd,
        call: Call<'_>,
        Extras { asking, wait }: Extras,
        deadline: Instant,
    ) -> Result<(Value, u32), Failure> {
        let mut requests = Pipeline::with_capacity(3);
        if asking {
            requests.cmd("ASKING");
        }
        requests.add_command(request);
        if let Some(wait) = wait {
            requests.add_command(request::wait(wait));
        }
        let used = wait.map_or(Use::Calls, |_| Use::Waits);
        let deadline = deadline + wait.map_or(Duration::ZERO, |(_, within)| within);
        let connection = self.connection(used);
        let answers = connection
            .run_all(&requests, deadline, call.unanswered)
            .await?;
        let mut answers = answers.into_iter().skip(usize::from(asking));
        let value = match answers.next().ok_or_else(|| self.malformed("EVALSHA"))? {
            Value::ServerError(error) => return Err(Failure::refused(self.server(), error)),
            value => value,
        };
        match (wait, answers.next()) {
            (None, _) => Ok((value, 0)),
            (_, Some(Value::Int(acks))) => Ok((value, u32::try_from(acks).unwrap_or(0))),
            // The script has run.
            (_, Some(Value::ServerError(error))) => Err(Failure {
                outcome_unknown: true,
                ..Failure::refused(self.server(), error)
            }),
            _ => Err(self.malformed("WAIT")),
        }
    }

    fn malformed(&self, what: &str) -> Failure {
        let (server, what) = (Arc::clone(self.server()), what.to_owned());
        Failure {
            cause: Cause::Malformed { server, what },
            outcome_unknown: true,
        }
    }

    fn connection(&self, used: Use) -> Arc<Connection> {
        let runtime = Handle::current();
        let at = (runtime.id(), used);
        self.known(at).unwrap_or_else(|| self.add(&runtime, at))
    }

    fn known(&self, at: (Id, Use)) -> Option<Arc<Connection>> {
        let connections = self.connections.read();
        let connections = connections.unwrap_or_else(PoisonError::into_inner);
        upgraded(&connections, at)
    }

    fn add(&self, runtime: &Handle, at: (Id, Use)) -> Arc<Connection> {
        let connections = self.connections.write();
        let mut connections = connections.unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = upgraded(&connections, at) {
            return connection;
        }
        let (connector, shared) = (Arc::clone(&self.connector), Arc::clone(&self.shared));
        let connection = Arc::new(Connection::new(connector, shared, runtime.clone()));
        connections.retain(|(_, connection)| connection.strong_count() > 0);
        connections.push((at, Arc::downgrade(&connection)));
        drop(connections);
        let (owned, mut end) = (Arc::clone(&connection), self.end.subscribe());
        // Outside of the mutex: a runtime that is over drops the task at once.
        drop(runtime.spawn(async move {
            // Never sent: closed with the node.
            drop(end.changed().await);
            drop(owned);
        }));
        connection
    }
}

/// There are two for each runtime: a search is faster than a hash.
fn upgraded(all: &[Entry], at: (Id, Use)) -> Option<Arc<Connection>> {
    let (_, connection) = all.iter().find(|(used, _)| *used == at)?;
    connection.upgrade()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.connector.server).finish()
    }
}
