use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{Call, CallKind, Done};
use super::connection::RedisConnection;
use super::connector::{Connector, require_master};
use super::context::ConnectionContext;
use super::request;
use crate::error::{RedisCause, RedisFailure, Refusal};

/// One server.
///
/// A free acquisition and a release use a connection of the caller's runtime: a hop to another
/// thread costs 5 us, and half of the throughput of many tasks. Waiters and renewals use the
/// engine's connection, which also receives the messages of the server.
pub(crate) struct RedisNode {
    connector: Arc<Connector>,
    shared: Arc<ConnectionContext>,
    /// Each belongs to a task of its runtime, and ends with that task.
    connections: RwLock<Vec<ConnectionEntry>>,
    /// Ends these tasks.
    end: watch::Sender<()>,
}

/// A connection of one runtime.
type ConnectionEntry = ((Id, Use), Weak<RedisConnection>);

/// `WAIT` blocks all later requests on a connection, so calls that wait use others. Renewals that wait have less
/// time than other calls, and would be late behind them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Calls,
    Renewals,
    Waits(u8),
}

/// Max connections of a runtime for calls that wait.
const MAX_WAIT_CONNECTIONS: u8 = 8;

impl RedisNode {
    pub(super) fn new(connector: Connector, shared: Arc<ConnectionContext>) -> Self {
        Self {
            connector: Arc::new(connector),
            shared,
            connections: RwLock::default(),
            end: watch::Sender::new(()),
        }
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.connector.server
    }

    /// Connects, unless there is a connection.
    pub(super) async fn open(&self) -> Result<(), RedisFailure> {
        // The attempt ends by itself with a reason; this limit is for a caller that waits for its turn.
        let deadline = self.shared.connect_deadline();
        self.connection(Use::Calls).ready(deadline).await
    }

    /// Runs a call; `asking` makes a cluster node serve a slot that is being moved to it.
    pub(super) async fn call(
        &self,
        call: Call<'_>,
        asking: bool,
        deadline: Instant,
    ) -> Result<Done, RedisFailure> {
        match call.kind {
            CallKind::Plain { command, .. } => {
                let command = Cow::Borrowed(command);
                self.send(call, command, asking, deadline).await
            }
            CallKind::Script { script, keys, args } => {
                let by_hash = Cow::Owned(request::by_hash(script, keys, args));
                match self.send(call, by_hash, asking, deadline).await {
                    Err(failure) if failure.refusal() == Some(Refusal::NoScript) => {
                        let by_text = Cow::Owned(request::by_text(script, keys, args));
                        Box::pin(self.send(call, by_text, asking, deadline)).await
                    }
                    outcome => outcome,
                }
            }
            CallKind::Take {
                lock,
                tokens,
                clears,
                holder,
                ttl,
            } => {
                let mut requests = pipeline(request::TAKE_COMMANDS, call, asking);
                request::take(&mut requests, lock, tokens, clears, holder, ttl);
                self.send_all(call, requests, asking, deadline).await
            }
        }
    }

    /// Sends the one request of a call, with those that belong before and after it, together.
    async fn send(
        &self,
        call: Call<'_>,
        command: Cow<'_, Cmd>,
        asking: bool,
        deadline: Instant,
    ) -> Result<Done, RedisFailure> {
        if asking || call.wait.is_some() {
            let mut requests = pipeline(1, call, asking);
            requests.add_command(command.into_owned());
            return self.send_all(call, requests, asking, deadline).await;
        }
        let connection = self.connection(Use::Calls);
        let value = connection.run(&command, deadline, call.unanswered).await?;
        Ok(self.done(value, 0))
    }

    /// Sends the requests of a call, and the one that waits for replicas, together.
    async fn send_all(
        &self,
        call: Call<'_>,
        mut requests: Pipeline,
        asking: bool,
        deadline: Instant,
    ) -> Result<Done, RedisFailure> {
        let connection = match call.wait {
            None => self.connection(Use::Calls),
            Some(_) if call.is_renewal => self.connection(Use::Renewals),
            Some(_) => self.waiting(deadline).await?,
        };
        let deadline = deadline + call.wait.map_or(Duration::ZERO, |(_, within)| within);
        let mut answers = match (call.wait, call.batch) {
            (Some(wait), Some(batch)) => {
                // Boxed: it would enlarge the future of every other request.
                Box::pin(batch.run_all(&connection, &requests, wait, deadline)).await?
            }
            (wait, _) => {
                if let Some(wait) = wait {
                    requests.add_command(request::wait(wait));
                }
                let answers = connection.run_all(&requests, deadline, call.unanswered);
                answers.await?
            }
        };
        let acks = call.wait.and_then(|_| answers.pop());
        if asking && !answers.is_empty() {
            answers.remove(0);
        }
        let (is_written, value) = match call.kind {
            CallKind::Take { .. } => {
                // The last reply may name another holder, and a script would report that alone. If it is an
                // error, a script asks again: a replica that loads its data set refuses writes as a replica, and
                // scripts as a server that loads.
                if let [Value::ServerError(error), .., last] = &*answers
                    && !matches!(last, Value::ServerError(_))
                {
                    let failure = RedisFailure::refused(self.server(), error.clone());
                    if failure.is_of_replica()
                        || matches!(
                            failure.refusal(),
                            Some(Refusal::ClusterDown | Refusal::NoCommand | Refusal::NoPerm)
                        )
                    {
                        return Err(failure);
                    }
                }
                let is_set = answers.first() == Some(&Value::Okay);
                (is_set, Value::Array(answers))
            }
            CallKind::Plain { .. } | CallKind::Script { .. } => match answers.pop() {
                Some(Value::ServerError(error)) => {
                    return Err(RedisFailure::refused(self.server(), error));
                }
                Some(value) => (true, value),
                None => return Err(self.malformed("no reply")),
            },
        };
        let acked = match (call.wait, acks) {
            (None, _) => 0,
            (_, Some(Value::Int(acks))) => u32::try_from(acks).unwrap_or(0),
            (_, Some(Value::ServerError(_))) if !is_written => 0,
            (_, Some(Value::ServerError(error))) => {
                return Err(RedisFailure::refused(self.server(), error).cause.unknown());
            }
            _ => return Err(self.malformed("WAIT")),
        };
        Ok(self.done(value, acked))
    }

    fn done(&self, value: Value, acked: u32) -> Done {
        Done {
            value,
            acked,
            server: Arc::clone(self.server()),
        }
    }

    /// Sends a plain command.
    pub(crate) async fn run(&self, request: &Cmd) -> Result<Value, RedisFailure> {
        let deadline = self.shared.deadline();
        self.connection(Use::Calls)
            .run(request, deadline, None)
            .await
    }

    /// Adds the keys of the server that match a pattern. Refuses a replica, whose keys may be old, unless the user
    /// may not ask for the role.
    pub(super) async fn scan(
        &self,
        pattern: &[u8],
        keys: &mut HashSet<Vec<u8>>,
    ) -> Result<(), RedisFailure> {
        let mut cursor = 0;
        loop {
            let mut requests = Pipeline::with_capacity(2);
            requests.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern);
            requests.arg("COUNT").arg(KEYS_AT_ONCE);
            requests.cmd("ROLE");
            let (deadline, connection) = (self.shared.deadline(), self.connection(Use::Calls));
            let mut answers = connection.run_all(&requests, deadline, None).await?;
            let (role, page) = (answers.pop(), answers.pop());
            if let Some(role) = role.filter(|role| !matches!(role, Value::ServerError(_))) {
                require_master(self.server(), &role)?;
            }
            let page = match page {
                Some(Value::ServerError(error)) => {
                    return Err(RedisFailure::refused(self.server(), error));
                }
                page => redis::from_redis_value(page.unwrap_or(Value::Nil)),
            };
            let (next, found): (u64, Vec<Vec<u8>>) = page
                .map_err(|error| RedisCause::malformed(self.server(), format!("SCAN: {error}")))?;
            keys.extend(found);
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    pub(super) async fn channel(
        &self,
        deadline: Instant,
    ) -> Result<Option<Arc<str>>, RedisFailure> {
        if !self.shared.push {
            return Ok(None);
        }
        let subscriber = &self.shared.subscriber;
        subscriber.get_or_init(|| Handle::current().id());
        let connection = self.subscriber();
        let connection = connection.unwrap_or_else(|| self.connection(Use::Calls));
        let listens = connection.listen(deadline).await?;
        Ok(listens.then(|| Arc::clone(&self.shared.channel)))
    }

    /// The channel, if it is subscribed already.
    pub(super) fn subscribed(&self) -> Option<Arc<str>> {
        let is_subscribed = self
            .subscriber()
            .is_some_and(|connection| connection.is_subscribed());
        is_subscribed.then(|| Arc::clone(&self.shared.channel))
    }

    fn subscriber(&self) -> Option<Arc<RedisConnection>> {
        self.known((*self.shared.subscriber.get()?, Use::Calls))
    }

    /// Closes the connections; the next call makes others.
    pub(super) fn hang_up(&self) {
        let connections = self.connections.read();
        let connections = connections.unwrap_or_else(PoisonError::into_inner);
        let all = connections.iter().filter_map(|(_, one)| one.upgrade());
        let all: Vec<_> = all.collect();
        // Without the lock held: the receivers of the event may send requests.
        drop(connections);
        all.iter().for_each(|connection| connection.hang_up());
    }

    fn malformed(&self, what: &str) -> RedisFailure {
        RedisCause::malformed(self.server(), what).unknown()
    }

    fn connection(&self, used: Use) -> Arc<RedisConnection> {
        let runtime = Handle::current();
        let at = (runtime.id(), used);
        self.known(at).unwrap_or_else(|| self.add(&runtime, at))
    }

    /// The connection that the fewest waiting calls use. Opens another one only while all before it are in use; if
    /// that fails, an open one is shared.
    async fn waiting(&self, deadline: Instant) -> Result<Arc<RedisConnection>, RedisFailure> {
        let least = self.least_used(|_| true).unwrap_or(Use::Waits(0));
        let connection = self.connection(least);
        let Err(failure) = connection.ready(deadline).await else {
            return Ok(connection);
        };
        let is_open = |known: Option<&Weak<RedisConnection>>| {
            let known = known.and_then(Weak::upgrade);
            known.is_some_and(|connection| connection.is_open())
        };
        match self.least_used(is_open) {
            Some(open) if Instant::now() < deadline => Ok(self.connection(open)),
            _ => Err(failure),
        }
    }

    /// Among the connections for waiting calls that qualify, the first of those that the fewest calls use.
    fn least_used(
        &self,
        qualifies: impl Fn(Option<&Weak<RedisConnection>>) -> bool,
    ) -> Option<Use> {
        let runtime = Handle::current().id();
        let connections = self.connections.read();
        let connections = connections.unwrap_or_else(PoisonError::into_inner);
        let known = |used: Use| {
            let known = connections.iter().find(|(at, _)| *at == (runtime, used));
            known.map(|(_, connection)| connection)
        };
        // One is the task that keeps it.
        let users = |used: &Use| known(*used).map_or(0, |it| it.strong_count().saturating_sub(1));
        let all = (0..MAX_WAIT_CONNECTIONS).map(Use::Waits);
        all.filter(|used| qualifies(known(*used))).min_by_key(users)
    }

    fn known(&self, at: (Id, Use)) -> Option<Arc<RedisConnection>> {
        let connections = self.connections.read();
        let connections = connections.unwrap_or_else(PoisonError::into_inner);
        upgraded(&connections, at)
    }

    fn add(&self, runtime: &Handle, at: (Id, Use)) -> Arc<RedisConnection> {
        let connections = self.connections.write();
        let mut connections = connections.unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = upgraded(&connections, at) {
            return connection;
        }
        let (connector, shared) = (Arc::clone(&self.connector), Arc::clone(&self.shared));
        let (runtime_of, may_subscribe) = (runtime.clone(), at.1 == Use::Calls);
        let connection = RedisConnection::new(connector, shared, runtime_of, may_subscribe);
        let connection = Arc::new(connection);
        connections.retain(|(_, connection)| connection.strong_count() > 0);
        connections.push((at, Arc::downgrade(&connection)));
        drop(connections);
        let (owned, mut end) = (Arc::clone(&connection), self.end.subscribe());
        // Outside of the mutex: a runtime that has ended drops the task at once.
        drop(runtime.spawn(async move {
            // Never sent: closed with the node.
            drop(end.changed().await);
            drop(owned);
        }));
        connection
    }
}

/// Room for so many commands of a call, and for those that belong before and after them.
fn pipeline(commands: usize, call: Call<'_>, asking: bool) -> Pipeline {
    let others = usize::from(asking) + usize::from(call.wait.is_some());
    let mut requests = Pipeline::with_capacity(commands + others);
    if asking {
        requests.cmd("ASKING");
    }
    requests
}

/// Keys that a server scans in one call, for about 100 microseconds.
const KEYS_AT_ONCE: usize = 1000;

/// There are few for each runtime: a search is faster than a hash.
fn upgraded(all: &[ConnectionEntry], at: (Id, Use)) -> Option<Arc<RedisConnection>> {
    let (_, connection) = all.iter().find(|(used, _)| *used == at)?;
    connection.upgrade()
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisNode")
            .field(&self.connector.server)
            .finish()
    }
}
