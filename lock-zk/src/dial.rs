use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Client, CreateMode};

use crate::acl::acls;
use crate::config::{Auth, ZooKeeperConfig};
use crate::error::{Cause, Failure};

/// Opens a session, logs in, and makes sure that the root is there.
///
/// The root of the client is that of the configuration: the path of a lock begins with `/<directory>`.
/// The session is served by a task of the runtime that polls this, and closes with its last client.
pub(crate) async fn dial(config: &ZooKeeperConfig) -> Result<Client, Failure> {
    let deadline = Instant::now() + config.connect_timeout;
    let client = open(config, deadline).await?;
    let within = config.connect_timeout;
    let rooted = timeout_at(deadline, rooted(client, config)).await;
    rooted.unwrap_or_else(|_| Err(Failure::silent(within)))
}

async fn open(config: &ZooKeeperConfig, deadline: Instant) -> Result<Client, Failure> {
    let error = match timeout_at(deadline, connect(config)).await {
        Ok(Ok(client)) => return Ok(client),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::silent(config.connect_timeout),
    };
    Err(error)
}

/// Tries every server once.
async fn connect(config: &ZooKeeperConfig) -> Result<Client, Failure> {
    let mut connector = Client::connector()
        .with_session_timeout(config.session_timeout)
        .with_fail_eagerly();
    if let Some(login) = &config.login {
        match login.auth {
            Auth::Digest => {
                let identity = format!("{}:{}", login.username, login.password);
                connector = connector.with_auth("digest", identity.as_bytes());
            }
            Auth::Sasl => {}
        }
    }
    Ok(connector.connect(&servers(config)).await?)
}

fn servers(config: &ZooKeeperConfig) -> String {
    let hosts = config.hosts.iter();
    let hosts = hosts.map(|(host, port)| address(host, *port));
    hosts.collect::<Vec<_>>().join(",")
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

async fn rooted(client: Client, config: &ZooKeeperConfig) -> Result<Client, Failure> {
    // Creating what exists needs the right to create it, asking does not.
    if client.check_stat(&config.root).await?.is_none() {
        let directory = CreateMode::Persistent.with_acls(acls(config.access()));
        client.mkdir(&config.root, &directory).await?;
    }
    client.chroot(config.root.as_str()).map_err(|_| {
        let message = format!("{:?} is no path of ZooKeeper", config.root);
        Cause::Config(message).into()
    })
}
