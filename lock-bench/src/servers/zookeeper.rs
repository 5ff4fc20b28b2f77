//! ZooKeeper: the minimal requests that exclude, and what the servers say of themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock::LockUrl;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::names::{addresses, segment, unique};
use super::try_out;
use crate::connection::Opened;
use crate::probe::{self, Probe, TargetFacts};
use crate::subject::{Failure, LOST, REFUSED, Subject};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    Ok(Arc::new(ZkProbe {
        client: connect(url).await?,
        addresses: addresses(url, 2181)?,
    }))
}

pub(super) async fn bare(url: &LockUrl, of: &str) -> Result<Opened, Failure> {
    let commands =
        "create and getChildren in one round trip, getData with a watch of the predecessor, delete";
    let lock = BareZkLock::new(connect(url).await?, url);
    try_out(&lock).await?;
    Ok(Opened::bare(of, commands, lock))
}

/// Opens a session like that of the locks.
async fn connect(url: &LockUrl) -> Result<Client, Failure> {
    let timeout = url.params().duration("session-timeout")?;
    let mut connector = Client::connector()
        .with_session_timeout(timeout.unwrap_or(Duration::from_secs(20)))
        .with_fail_eagerly();
    if let Some(identity) = identity(url) {
        connector = connector.with_auth("digest", identity.as_bytes());
    }
    let hosts = addresses(url, 2181)?.join(",");
    connector.connect(&hosts).await.map_err(failure)
}

fn identity(url: &LockUrl) -> Option<String> {
    Some(format!("{}:{}", url.username()?, url.password()?))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: Error) -> Failure {
    let kind = match error {
        Error::NoAuth | Error::AuthFailed => REFUSED,
        Error::NoNode => LOST,
        _ => "unavailable",
    };
    Failure::of(kind, &error)
}

/// What a lock in ZooKeeper takes at least: a node behind those of others, and a watch of the one
/// before it. A future that is dropped leaves its node until the session ends.
#[derive(Clone)]
struct BareZkLock {
    client: Client,
    /// What stands before the directories.
    root: Arc<str>,
    acls: Acls<'static>,
}

struct BareZkNode {
    path: String,
    /// Digits, as the server wrote them.
    number: String,
    token: u64,
}

impl BareZkLock {
    fn new(client: Client, url: &LockUrl) -> Self {
        let root = match url.path().trim_end_matches('/') {
            "" => "/locks",
            path => path,
        };
        Self {
            client,
            root: format!("{root}-bare").into(),
            acls: match identity(url) {
                Some(_) => Acls::creator_all(),
                None => Acls::anyone_all(),
            },
        }
    }

    /// Makes a node and lists all of them, in one round trip where there is a directory.
    async fn join(&self, directory: &str) -> Result<(BareZkNode, Vec<String>), Error> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls);
        let stem = format!("{directory}/{}-", unique());
        // Requests leave when they are made, and are answered in their order.
        let created = self.client.create(&stem, &[], &options);
        let listed = self.client.list_children(directory);
        let (stat, number) = created.await?;
        let all = listed.await?;
        let number = number.to_string();
        let path = format!("{stem}{number}");
        let token = u64::try_from(stat.czxid).unwrap_or_default();
        Ok((
            BareZkNode {
                path,
                number,
                token,
            },
            all,
        ))
    }

    /// Waits until a node is changed or gone.
    async fn gone(&self, path: &str) -> Result<(), Error> {
        match self.client.get_and_watch_data(path).await {
            Ok((_, _, watcher)) => {
                watcher.changed().await;
                Ok(())
            }
            Err(Error::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Subject for BareZkLock {
    type Key = Arc<str>;
    type Held = BareZkNode;

    fn key(&self, name: &str, _: Duration) -> Result<Arc<str>, Failure> {
        Ok(format!("{}/{}", self.root, segment(name)).into())
    }

    async fn acquire(
        &self,
        directory: &Arc<str>,
        wait: Duration,
    ) -> Result<Option<BareZkNode>, Failure> {
        let deadline = Instant::now() + wait;
        let joined = match self.join(directory).await {
            Err(Error::NoNode) => {
                let container = CreateMode::Container.with_acls(self.acls);
                let made = self.client.mkdir(directory, &container).await;
                made.map_err(failure)?;
                self.join(directory).await
            }
            joined => joined,
        };
        let (node, mut all) = joined.map_err(failure)?;
        while let Some(before) = before(&node.number, &all) {
            let path = format!("{directory}/{before}");
            let Ok(is_gone) = timeout_at(deadline, self.gone(&path)).await else {
                self.release(node).await?;
                return Ok(None);
            };
            is_gone.map_err(failure)?;
            // It may have been one that waited, and another one be before it.
            let listed = self.client.list_children(directory).await;
            all = listed.map_err(failure)?;
        }
        Ok(Some(node))
    }

    fn token(held: &BareZkNode) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: BareZkNode) -> Result<(), Failure> {
        self.client.delete(&held.path, None).await.map_err(failure)
    }
}

/// The nearest node that came before the one with this number.
pub(super) fn before<'a>(sequence: &str, all: &'a [String]) -> Option<&'a str> {
    let number = |node: &'a str| node.rsplit('-').next().unwrap_or_default();
    let nodes = all.iter().map(String::as_str);
    let earlier = nodes.filter(|node| number(node) < sequence);
    earlier.max_by_key(|node| number(node))
}

struct ZkProbe {
    client: Client,
    addresses: Vec<String>,
}

impl ZkProbe {
    /// What a server answers to the four-letter word `srvr`; none if it does not know it.
    async fn srvr(&self, address: &str) -> Option<HashMap<String, String>> {
        let answer = async {
            let mut stream = TcpStream::connect(address).await.ok()?;
            stream.write_all(b"srvr").await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            Some(answer)
        };
        let answer = timeout(Duration::from_secs(2), answer).await.ok()??;
        let lines = answer.lines().filter_map(|line| line.split_once(':'));
        let values = lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        let values: HashMap<_, _> = values.collect();
        values.contains_key("Received").then_some(values)
    }
}

#[async_trait]
impl Probe for ZkProbe {
    async fn ping(&self) -> Result<(), Failure> {
        self.client.check_stat("/").await.map(drop).map_err(failure)
    }

    /// Packets that came to the servers of the URL, with the heartbeats of sessions: each client is
    /// connected to one of them.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        let mut received = 0;
        for address in &self.addresses {
            let values = self.srvr(address).await;
            let packets = values.and_then(|values| values["Received"].parse::<u64>().ok());
            let Some(packets) = packets else {
                return Ok(None);
            };
            received += packets;
        }
        Ok(Some(received))
    }

    async fn facts(&self) -> Result<TargetFacts, Failure> {
        let values = match self.addresses.first() {
            Some(address) => self.srvr(address).await,
            None => None,
        };
        let version = values.as_ref().and_then(|v| v.get("Zookeeper version"));
        // Behind the comma is when it was built.
        let version = version.and_then(|version| version.split([',', '-']).next());
        let version = version.map(|version| format!("ZooKeeper {version}"));
        let untold = || "not told: srvr is not among its four-letter words".to_owned();
        let commands = match values {
            Some(_) => "packets received, with the heartbeats of sessions",
            None => "not counted",
        };
        let session = humantime::format_duration(self.client.session_timeout());
        let durability = "the log is synced, unless forceSync=no, which clients are not told";
        let mut facts = vec![
            ("version", version.unwrap_or_else(untold)),
            ("session-timeout", session.to_string()),
            ("durability", durability.to_owned()),
            ("commands", commands.to_owned()),
        ];
        if let Ok((config, _)) = self.client.get_data("/zookeeper/config").await {
            let config = String::from_utf8_lossy(&config);
            let members = config.lines().filter(|line| line.starts_with("server."));
            facts.push(("servers", members.count().max(1).to_string()));
        }
        Ok(probe::facts(facts))
    }
}
