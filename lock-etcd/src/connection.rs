//! Sends requests to one server of a cluster as long as it answers, then to the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error as ClientError, KvClient, Txn, TxnResponse};
use polylock_core::engine::{Engine, before};
use polylock_core::{Error, ErrorKind};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::config::EtcdConfig;
use crate::error::{EtcdFailure, RETRY_BACKOFF, is_without_auth};

/// The servers of a cluster, of which one is in use.
pub(crate) struct EtcdConnection {
    config: Arc<EtcdConfig>,
    engine: Engine,
    servers: Vec<Arc<EtcdEndpoint>>,
    current: AtomicUsize,
}

struct EtcdEndpoint {
    url: String,
    client: Mutex<Option<Numbered>>,
    /// The number of connections that were made. Locked to make the next one, so that a thousand requests
    /// make one.
    connecting: tokio::sync::Mutex<u64>,
}

/// A connection to one server.
#[derive(Clone)]
struct Numbered {
    number: u64,
    client: Client,
}

/// The timeout of one server.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection and its login may take; meanwhile no other one is made to that server.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(4);

/// A request that is dropped sooner says nothing about its server.
const SHORT: Duration = Duration::from_millis(200);

impl EtcdConnection {
    pub(crate) fn new(config: &Arc<EtcdConfig>, engine: &Engine) -> Self {
        let scheme = match config.tls {
            Some(_) => "https",
            None => "http",
        };
        let servers = config.hosts.iter().map(|(host, port)| EtcdEndpoint {
            url: match host.contains(':') {
                true => format!("{scheme}://[{host}]:{port}"),
                false => format!("{scheme}://{host}:{port}"),
            },
            client: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        });
        Self {
            config: Arc::clone(config),
            engine: engine.clone(),
            servers: servers.map(Arc::new).collect(),
            current: AtomicUsize::new(0),
        }
    }

    /// The index of the server in use.
    pub(crate) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Sends a request once, to the server in use.
    pub(crate) async fn send<T, F>(
        &self,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, EtcdFailure>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (_, answer) = self.send_to(self.current(), request).await?;
        Ok(answer)
    }

    /// Sends a request once, to the server at an index. Returns the number of the connection and the answer.
    pub(crate) async fn send_to<T, F>(
        &self,
        at: usize,
        request: impl FnOnce(Client) -> F,
    ) -> Result<(u64, T), EtcdFailure>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut attempt = self.attempt(at, None);
        let limit = attempt.limit();
        // Boxed: a client is large, and so is every future that has one.
        let answer = before(
            Instant::now() + limit,
            Box::pin(async {
                let Numbered { number, client } = self.client(at).await?;
                attempt.number = Some(number);
                let answer = request(client).await;
                let answer = answer.map_err(|error| self.failure(error));
                answer.map(|answer| (number, answer))
            }),
        );
        let answer = answer.await.unwrap_or(Err(EtcdFailure::Silent(limit)));
        attempt.end(answer)
    }

    /// Sends on a stream once, over the connection of a number.
    pub(crate) async fn send_on<T>(
        &self,
        at: usize,
        number: u64,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, EtcdFailure> {
        let attempt = self.attempt(at, Some(number));
        let limit = attempt.limit();
        let answer = match before(Instant::now() + limit, request).await {
            Some(answer) => answer.map_err(|error| self.failure(error)),
            None => Err(EtcdFailure::Silent(limit)),
        };
        attempt.end(answer)
    }

    fn attempt(&self, at: usize, number: Option<u64>) -> PendingRequest<'_> {
        PendingRequest {
            connection: self,
            at,
            number,
            begun: Instant::now(),
            is_answered: false,
        }
    }

    fn failure(&self, error: ClientError) -> EtcdFailure {
        EtcdFailure::of_request(error, self.config.login.is_some())
    }

    /// The number of the present connection to a server.
    pub(crate) fn number(&self, at: usize) -> Option<u64> {
        let client = self.servers[at % self.servers.len()].client();
        client.as_ref().map(|client| client.number)
    }

    /// Sends a transaction once, to the server in use.
    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse, EtcdFailure> {
        self.send(|client| async move { kv(&client).txn(txn).await })
            .await
    }

    /// Retries a request until any server answers or refuses it.
    pub(crate) async fn retried<T, F>(
        &self,
        until: Instant,
        request: impl Fn(Client) -> F + Send + Sync,
    ) -> Result<T, EtcdFailure>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        loop {
            match self.send(&request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.pause(until, failure).await?,
            }
        }
    }

    /// Pauses before a retry; returns the failure if a retry cannot fix it, or there is no time for one.
    pub(crate) async fn pause(
        &self,
        until: Instant,
        failure: EtcdFailure,
    ) -> Result<(), EtcdFailure> {
        let pause = self.engine.jitter(RETRY_BACKOFF / 2, RETRY_BACKOFF);
        let may_pass = failure.is_retryable() || failure.is_of_connection();
        if !may_pass || Instant::now() + pause >= until {
            return Err(failure);
        }
        sleep(pause).await;
        Ok(())
    }

    /// The client of a server. It lives on the engine, whichever task needs it first.
    async fn client(&self, at: usize) -> Result<Numbered, EtcdFailure> {
        let server = &self.servers[at % self.servers.len()];
        let known = server.client().clone();
        if let Some(client) = known {
            return Ok(client);
        }
        let (server, config) = (Arc::clone(server), Arc::clone(&self.config));
        let (mut done, connected) = oneshot::channel();
        self.engine.spawn_service(async move {
            let turn = tokio::select! {
                biased;
                () = done.closed() => return,
                turn = server.connecting.lock() => turn,
            };
            // Runs to completion even if the caller is dropped: a login may take longer than a renewal has.
            drop(done.send(server.connect(turn, &config).await));
        });
        connected.await.unwrap_or_else(|_| {
            let message = "the task of this connection has panicked";
            let panicked = Error::new(ErrorKind::Unavailable, message);
            Err(EtcdFailure::Core(panicked))
        })
    }

    /// Goes on with the next server. If the connection to this one has the number, it gets a fresh one later.
    pub(crate) fn leave(&self, at: usize, number: Option<u64>) {
        let next = (at + 1) % self.servers.len();
        // Another request may have left it before.
        if self.current() == at {
            self.current.store(next, Ordering::Relaxed);
        }
        let mut client = self.servers[at % self.servers.len()].client();
        // Another request may have connected anew.
        if client
            .as_ref()
            .is_some_and(|client| Some(client.number) == number)
        {
            *client = None;
        }
    }
}

/// A client that reads long queues.
pub(crate) fn kv(client: &Client) -> KvClient {
    let kv = client.kv_client();
    kv.max_decoding_message_size(MAX_REPLY)
}

/// In bytes, enough for a hundred thousand contenders.
const MAX_REPLY: usize = 64 << 20;

/// Servers with default settings close connections that ping more often than every 5 s, or without a request
/// or a stream under way.
const PING_INTERVAL: Duration = Duration::from_secs(10);

impl EtcdEndpoint {
    async fn connect(
        &self,
        mut connections: tokio::sync::MutexGuard<'_, u64>,
        config: &EtcdConfig,
    ) -> Result<Numbered, EtcdFailure> {
        let known = self.client().clone();
        if let Some(client) = known {
            return Ok(client);
        }
        let client = timeout(LOGIN_TIMEOUT, self.open(config)).await;
        let client = client.unwrap_or(Err(EtcdFailure::Silent(LOGIN_TIMEOUT)))?;
        *connections += 1;
        let numbered = Numbered {
            number: *connections,
            client,
        };
        *self.client() = Some(numbered.clone());
        Ok(numbered)
    }

    /// A user is logged in here; else nothing is sent yet.
    async fn open(&self, config: &EtcdConfig) -> Result<Client, EtcdFailure> {
        let options = options(config).await?;
        if let Some(source) = &config.login {
            let login = source.login().await.map_err(EtcdFailure::Core)?;
            let (username, password) = (login.username(), login.password());
            let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
            let known = options.clone().with_user(username, password);
            match Client::connect([&self.url], Some(known)).await {
                // As etcd's own client does. A login proves the client to the server, and not the other way
                // round: a false server could take the login and answer it with any token.
                Err(ClientError::GRpcStatus(status)) if is_without_auth(&status) => {
                    tracing::warn!(
                        server = self.url,
                        "connected without a login: etcd has authentication disabled"
                    );
                }
                connected => return Ok(connected?),
            }
        }
        Ok(Client::connect([&self.url], Some(options)).await?)
    }

    fn client(&self) -> MutexGuard<'_, Option<Numbered>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without a login.
async fn options(config: &EtcdConfig) -> Result<ConnectOptions, EtcdFailure> {
    let options = ConnectOptions::new()
        .with_connect_timeout(SERVER_TIMEOUT)
        .with_keep_alive(PING_INTERVAL, SERVER_TIMEOUT)
        .with_keep_alive_while_idle(false)
        // The system checks an idle connection, without pings that the server counts.
        .with_tcp_keepalive(PING_INTERVAL)
        .with_require_leader(true)
        .with_auto_token_refresh(true);
    match &config.tls {
        Some(files) => crate::tls::apply(files, options).await,
        None => Ok(options),
    }
}

/// A request under way. If it is dropped after a while, because its caller is out of time, it leaves the
/// server.
struct PendingRequest<'a> {
    connection: &'a EtcdConnection,
    at: usize,
    /// The connection that it is sent on, once there is one.
    number: Option<u64>,
    begun: Instant,
    is_answered: bool,
}

impl PendingRequest<'_> {
    /// How long it may take.
    fn limit(&self) -> Duration {
        SERVER_TIMEOUT.min(self.connection.config.timeout)
    }

    /// Leaves the server if another one may do better.
    fn end<T>(mut self, answer: Result<T, EtcdFailure>) -> Result<T, EtcdFailure> {
        self.is_answered = true;
        if answer.as_ref().is_err_and(EtcdFailure::is_of_connection) {
            self.connection.leave(self.at, self.number);
        }
        answer
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.begun.elapsed() >= SHORT {
            self.connection.leave(self.at, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is sent without a connection, so that the outcome is known.
    #[tokio::test]
    async fn a_refused_connection_leaves_no_doubt() {
        // No server listens there.
        let config = Arc::new(EtcdConfig::new([("127.0.0.1", 1)]));
        let connection = EtcdConnection::new(&config, &Engine::of_this_process("etcd"));
        let refused = connection.txn(Txn::new()).await;
        let failure = refused.expect_err("no server listens");
        assert!(!failure.is_ambiguous(), "{failure:?}");
        let is_retried = failure.is_retryable() && failure.is_of_connection();
        assert!(is_retried, "{failure:?}");
    }
}
