use std::sync::Arc;
use std::time::Duration;

use polylock_core::{Login, LoginSource};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, Value,
};
use tokio::time::timeout;

use super::context::ConnectionContext;
use super::driver::{self, SocketState};
#[cfg(feature = "tls")]
use super::tls;
use crate::config::{Endpoint, RedisConfig};
use crate::error::{RedisCause, RedisFailure, Refusal};

/// How to connect to servers of one kind.
#[derive(Clone, Debug)]
pub(super) struct Connectors {
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
    /// Of the application's client.
    address: Option<ConnectionAddr>,
    login: LoginSource,
    database: u32,
    resp3: bool,
    timeout: Duration,
    wants_masters: bool,
}

impl Connectors {
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, reason = "it has the certificates")
    )]
    pub(super) fn new(config: &RedisConfig, shared: &ConnectionContext) -> Self {
        Self {
            #[cfg(feature = "tls")]
            certificates: shared.certificates.clone(),
            address: config.client_address.clone(),
            login: config.login.clone(),
            database: config.database,
            resp3: config.resp3,
            timeout: config.timeout,
            wants_masters: false,
        }
    }

    /// Refuses servers that are no masters.
    pub(super) fn to_masters(&self) -> Self {
        Self {
            wants_masters: true,
            ..self.clone()
        }
    }

    /// For Sentinels, which have a login of their own and no databases.
    pub(super) fn to_sentinels(&self, login: &LoginSource) -> Self {
        Self {
            login: login.clone(),
            database: 0,
            ..self.clone()
        }
    }

    pub(super) fn to(&self, endpoint: &Endpoint) -> Result<Connector, RedisFailure> {
        // Reports wrong settings here instead of at the first connection.
        self.client(endpoint, ProtocolVersion::RESP3, &Login::new())?;
        Ok(Connector {
            server: endpoint.to_string().into(),
            endpoint: endpoint.clone(),
            settings: self.clone(),
        })
    }

    /// Sends one command on a connection of its own.
    pub(super) async fn ask_once(
        &self,
        endpoint: &Endpoint,
        request: &Cmd,
    ) -> Result<Value, RedisFailure> {
        let connector = self.to(endpoint)?;
        let (mut connection, _) = connector.open(|_| Ok::<(), ()>(()), None).await?;
        connector.ask(&mut connection, request).await
    }

    fn client(
        &self,
        endpoint: &Endpoint,
        protocol: ProtocolVersion,
        login: &Login,
    ) -> Result<Client, RedisFailure> {
        let mut redis = RedisConnectionInfo::default()
            .set_db(i64::from(self.database))
            .set_protocol(protocol)
            .set_lib_name("polylock", env!("CARGO_PKG_VERSION"));
        if let Some(username) = login.username() {
            redis = redis.set_username(username);
        }
        if let Some(password) = login.password() {
            redis = redis.set_password(password);
        }
        let wrong = |error: RedisError| RedisCause::Config(error.to_string());
        let address = self.address.clone().unwrap_or_else(|| match endpoint {
            Endpoint::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Endpoint::Unix(path) => ConnectionAddr::Unix(path.clone()),
        });
        let info = address
            .into_connection_info()
            .map_err(wrong)?
            .set_redis_settings(redis)
            .set_tcp_settings(driver::tcp_settings(self.timeout));
        #[cfg(feature = "tls")]
        if let (Endpoint::Tcp { host, port }, Some(known)) = (endpoint, &self.certificates) {
            return tls::client(known, host, *port, info);
        }
        Ok(Client::open(info).map_err(wrong)?)
    }
}

/// How connections to one server are made.
#[derive(Debug)]
pub(super) struct Connector {
    /// Address of the server, for messages.
    pub(super) server: Arc<str>,
    endpoint: Endpoint,
    settings: Connectors,
}

impl Connector {
    /// Makes a connection, and says whether its server can push. Without a `life`, which tasks share, it
    /// is for one task.
    pub(super) async fn open(
        &self,
        pushed: impl AsyncPushSender,
        life: Option<&Arc<SocketState>>,
    ) -> Result<(MultiplexedConnection, bool), RedisFailure> {
        let (connection, pushes) = self.shake_hands(pushed, life).await?;
        if self.settings.wants_masters {
            self.check_role(connection.clone()).await?;
        }
        Ok((connection, pushes))
    }

    async fn shake_hands(
        &self,
        pushed: impl AsyncPushSender,
        life: Option<&Arc<SocketState>>,
    ) -> Result<(MultiplexedConnection, bool), RedisFailure> {
        // The caller limits the time, because its timer may move to another runtime.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUESTS_IN_LINE);
        let login = self.settings.login.login().await;
        let login = login.map_err(|error| RedisCause::NoLogin {
            server: Arc::clone(&self.server),
            source: Arc::new(error),
        })?;
        let client = |protocol| self.settings.client(&self.endpoint, protocol, &login);
        let unconnected = |error| RedisFailure::unconnected(&self.server, error);
        if self.settings.resp3 {
            let settings = settings.clone().set_push_sender(pushed);
            let client = client(ProtocolVersion::RESP3)?;
            match driver::connect(&client, settings, self.settings.timeout, life).await {
                Ok(connection) => return Ok((connection, true)),
                Err(error) if knows_no_resp3(&error) => {}
                Err(error) => return Err(unconnected(error)),
            }
        }
        // For a server that knows no RESP3.
        let client = client(ProtocolVersion::RESP2)?;
        let made = driver::connect(&client, settings, self.settings.timeout, life).await;
        Ok((made.map_err(unconnected)?, false))
    }

    /// Limits the time for an answer on a connection that is for one task.
    pub(super) async fn in_time<T>(
        &self,
        within: Duration,
        answer: impl Future<Output = Result<T, RedisFailure>>,
    ) -> Result<T, RedisFailure> {
        let answer = timeout(within, answer).await;
        answer.unwrap_or_else(|_| Err(RedisFailure::silent(&self.server, within, false)))
    }

    /// Sends a first command on a connection.
    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        request: &Cmd,
    ) -> Result<Value, RedisFailure> {
        let reply = connection.send_packed_command(request).await;
        match reply.map_err(|error| RedisFailure::unconnected(&self.server, error))? {
            Value::ServerError(error) => {
                Err(RedisFailure::refused(&self.server, error).cause.into())
            }
            reply => Ok(reply),
        }
    }

    async fn check_role(&self, mut connection: MultiplexedConnection) -> Result<(), RedisFailure> {
        let reply = self.ask(&mut connection, &redis::cmd("ROLE")).await?;
        require_master(&self.server, &reply)
    }
}

/// Refuses a server that is no master, by its reply to `ROLE`.
pub(super) fn require_master(server: &Arc<str>, role: &Value) -> Result<(), RedisFailure> {
    let role = match role {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    match role {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        Some(Value::BulkString(_)) => Err(RedisCause::Refused {
            server: Arc::clone(server),
            refusal: Refusal::ReadOnly,
            source: Arc::from(Box::from("ROLE is not master")),
        }
        .into()),
        _ => Err(RedisCause::malformed(server, "ROLE").into()),
    }
}

/// Requests that queue for the socket before callers wait as well.
const REQUESTS_IN_LINE: usize = 1024;

/// Servers before 6.0, and proxies that speak only RESP2.
fn knows_no_resp3(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::RESP3NotSupported
        || matches!(error.code(), Some("NOPROTO"))
        || error.detail().is_some_and(|detail| {
            let detail = detail.to_ascii_lowercase();
            detail.contains("unknown command") && detail.contains("hello")
                || detail.contains("'hello'")
        })
}
