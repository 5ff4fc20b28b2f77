use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Engine, Moment};
use tokio::time::{Instant, sleep, timeout_at};
use zookeeper_client::{
    Acl, Acls, Client, Connector, CreateMode, Error as ClientError, Permission,
};

use super::negotiation::{Negotiated, listen};
use crate::config::{Auth, Compat, NodeAccess, OwnConnector, ZooKeeperConfig};
use crate::diagnose_connect::{ConnectAnswers, address, diagnose_connect};
use crate::error::ZkFailure;
use crate::tls::ZkCertificates;

/// Opens a session, logs in, and makes sure that the root is there.
///
/// The root of the client is that of the configuration: the path of a lock begins with `/<directory>`.
/// The session is a task of the engine, and closes with its last client. Also returns a moment before the
/// request for it left.
pub(crate) async fn open_session(
    config: &ZooKeeperConfig,
    engine: &Engine,
) -> Result<(Client, Moment, Arc<Negotiated>), ZkFailure> {
    let deadline = Instant::now() + config.connect_timeout;
    let (opened, negotiated) = listen(engine, open(config, deadline, engine)).await;
    let (client, began) = opened?;
    // A process that was stopped may see the reply long after the request left.
    let asked = match negotiated.responses() {
        0 => began,
        _ => negotiated.asked(),
    };
    let rooted = timeout_at(deadline, rooted(client, config)).await;
    let client = rooted.unwrap_or_else(|_| Err(ZkFailure::Silent(config.connect_timeout)))?;
    Ok((client, asked, negotiated))
}

/// Opens a session on the runtime that polls this, to see what the ensemble grants.
pub(crate) async fn visit(config: &ZooKeeperConfig, engine: &Engine) -> Result<Client, ZkFailure> {
    let deadline = Instant::now() + config.connect_timeout;
    let (client, _) = open(config, deadline, engine).await?;
    Ok(client)
}

/// Tries all servers, with retries as long as they can help. Also returns when the last attempt began.
async fn open(
    config: &ZooKeeperConfig,
    deadline: Instant,
    engine: &Engine,
) -> Result<(Client, Moment), ZkFailure> {
    let certificates = timeout_at(deadline, read_certificates(config)).await;
    let certificates = certificates.unwrap_or_else(|_| {
        let within = config.connect_timeout;
        let message = format!("the TLS files were not read within {within:?}");
        Err(ZkFailure::NoSession(message))
    })?;
    let certificates = certificates.as_ref();
    let reserve = time_to_probe(config);
    loop {
        let began = engine.now();
        let connected = timeout_at(deadline - reserve, connect(config, certificates));
        let connected = tokio::select! {
            connected = connected => connected,
            strangers = strangers(config, certificates, reserve) => return Err(strangers.into()),
        };
        match connected {
            Ok(Ok(client)) => return Ok((client, began)),
            Ok(Err(failure)) if !is_silence(&failure) => return Err(failure),
            Ok(Err(_)) | Err(_) => {}
        }
        let answers = diagnose_connect(config, certificates, reserve).await;
        if !answers.may_change() || Instant::now() + RETRY_INTERVAL + reserve >= deadline {
            return Err(answers.into());
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// The certificates, as they are in the files now.
async fn read_certificates(config: &ZooKeeperConfig) -> Result<Option<ZkCertificates>, ZkFailure> {
    match &config.tls {
        Some(tls) => ZkCertificates::read(tls, config).await.map(Some),
        None => Ok(None),
    }
}

/// Returns only if all servers turn out not to be ZooKeeper: such a server can make the client wait until
/// its timeout.
async fn strangers(
    config: &ZooKeeperConfig,
    certificates: Option<&ZkCertificates>,
    within: Duration,
) -> ConnectAnswers {
    sleep(PROBE_AFTER).await;
    let answers = diagnose_connect(config, certificates, within).await;
    if !answers.are_strangers() {
        std::future::pending::<()>().await;
    }
    answers
}

/// A server that opens sessions has opened one by then, unless it is slow.
const PROBE_AFTER: Duration = Duration::from_millis(500);

const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The part of the connect timeout for finding out why no server opens a session.
fn time_to_probe(config: &ZooKeeperConfig) -> Duration {
    (config.connect_timeout / 5).min(Duration::from_secs(1))
}

/// Whether the client has tried all servers and does not report why they failed.
fn is_silence(failure: &ZkFailure) -> bool {
    matches!(
        failure,
        ZkFailure::Client(ClientError::NoHosts | ClientError::Timeout)
    )
}

/// Tries all servers once.
async fn connect(
    config: &ZooKeeperConfig,
    certificates: Option<&ZkCertificates>,
) -> Result<Client, ZkFailure> {
    let connector = match &config.connector {
        Some(OwnConnector(connector)) => connector.clone(),
        None => Client::connector(),
    };
    let mut connector = connector
        .with_session_timeout(config.session_timeout)
        .with_connection_timeout(server_timeout(config))
        .with_fail_eagerly()
        .with_readonly(false);
    if let Some((auth, source)) = &config.login {
        let without_login = |error| ZkFailure::NoLogin(Arc::new(error));
        let login = source.login().await.map_err(without_login)?;
        let (username, password) = auth.check(&login).map_err(without_login)?;
        connector = log_in(connector, *auth, username, password)?;
    }
    let servers = servers(config);
    match certificates {
        None => Ok(connector.connect(&servers).await?),
        Some(certificates) => certificates.connect(connector, &servers).await,
    }
}

/// How long a server may be silent before the next one is tried, now and later.
///
/// Two fifths of the session leave time for a second server before it expires. If two of three or more
/// servers hang, the third must be tried within the connect timeout.
fn server_timeout(config: &ZooKeeperConfig) -> Duration {
    let turns = u32::try_from(config.hosts.len()).unwrap_or(3).clamp(1, 3);
    let turn = (config.connect_timeout - time_to_probe(config)) / turns;
    turn.min(config.session_timeout * 2 / 5)
}

fn servers(config: &ZooKeeperConfig) -> String {
    let hosts = config.hosts.iter();
    let hosts = hosts.map(|(host, port)| address(host, *port));
    hosts.collect::<Vec<_>>().join(",")
}

async fn rooted(client: Client, config: &ZooKeeperConfig) -> Result<Client, ZkFailure> {
    // Creating an existing node needs the right to create it; checking it needs none.
    if client.check_stat(&config.root).await?.is_none() {
        let directory = CreateMode::Persistent.with_acls(config.acls());
        client.mkdir(&config.root, &directory).await?;
    }
    let client = client
        .chroot(config.root.as_str())
        .map_err(|_| ZkFailure::Config(format!("{:?} is no path of ZooKeeper", config.root)))?;
    // A client without that right cannot keep a lock.
    write(&client).await?;
    Ok(client)
}

/// A transaction that a majority of the servers stores, and that changes nothing: it checks that
/// the root exists. It needs no node and only the right to read the root, and wakes no watch.
pub(super) async fn write(client: &Client) -> Result<(), ClientError> {
    let mut transaction = client.new_multi_writer();
    transaction.add_check_version("/", ANY_VERSION)?;
    transaction.commit().await?;
    Ok(())
}

const ANY_VERSION: i32 = -1;

/// Has the session log in, each time that it connects.
fn log_in(
    connector: Connector,
    auth: Auth,
    username: &str,
    password: &str,
) -> Result<Connector, ZkFailure> {
    match auth {
        Auth::Digest => {
            let identity = format!("{username}:{password}");
            Ok(connector.with_auth("digest", identity.as_bytes()))
        }
        Auth::Sasl => sasl(connector, username, password),
    }
}

#[cfg(feature = "sasl")]
#[expect(clippy::unnecessary_wraps, reason = "it fails without the feature")]
fn sasl(connector: Connector, username: &str, password: &str) -> Result<Connector, ZkFailure> {
    use zookeeper_client::SaslOptions;

    let (username, password) = (username.to_owned(), password.to_owned());
    Ok(connector.with_sasl(SaslOptions::digest_md5(username, password)))
}

#[cfg(not(feature = "sasl"))]
fn sasl(_: Connector, _: &str, _: &str) -> Result<Connector, ZkFailure> {
    let message = "this program is built without the feature \"sasl\" of polylock-zk";
    Err(ZkFailure::Config(message.to_owned()))
}

/// Recreates the directory of all locks, if it was deleted under a client.
pub(crate) async fn make_root(rooted: &Client, config: &ZooKeeperConfig) -> Result<(), ZkFailure> {
    let whole = rooted.clone().chroot("/");
    let whole = whole.map_err(|_| ZkFailure::Malformed("a client without a root".to_owned()))?;
    let directory = CreateMode::Persistent.with_acls(config.acls());
    Ok(whole.mkdir(&config.root, &directory).await?)
}

/// Creates a directory below the root, which ZooKeeper removes after a while without use; except for
/// kazoo, which ensures it once and fails if it is gone later. False if it was there before.
pub(crate) async fn make_directory(
    rooted: &Client,
    path: &str,
    config: &ZooKeeperConfig,
) -> Result<bool, ZkFailure> {
    let mode = match config.compat {
        Compat::Kazoo => CreateMode::Persistent,
        _ => CreateMode::Container,
    };
    loop {
        let options = mode.with_acls(config.acls());
        match rooted.create(path, &[], &options).await {
            Ok(_) => return Ok(true),
            Err(ClientError::NodeExists) => return Ok(false),
            Err(ClientError::NoNode) => make_root(rooted, config).await?,
            Err(error) => return Err(error.into()),
        }
    }
}

impl ZooKeeperConfig {
    /// The access control list of the nodes that this client creates.
    pub(crate) fn acls(&self) -> Acls<'static> {
        match self.access() {
            NodeAccess::Creator => Acls::creator_all(),
            NodeAccess::CreatorAndReaders => Acls::new(&CREATOR_AND_READERS),
            NodeAccess::Everybody => Acls::anyone_all(),
        }
    }
}

static CREATOR_AND_READERS: [Acl; 2] = [
    Acl::new_const(Permission::ALL, "auth", ""),
    Acl::new_const(Permission::READ, "world", "anyone"),
];
