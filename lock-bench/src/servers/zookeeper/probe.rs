use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use polylock::Host;
use zookeeper_client::Client;

use super::words::srvr;
use super::{address, failure};
use crate::subject::Failure;
use crate::target::Probe;

pub(super) struct Asker {
    client: Client,
    hosts: Vec<Host>,
    /// How many requests and words of its own the servers have counted.
    asked: AtomicU64,
}

impl Asker {
    pub(super) fn new(client: Client, hosts: Vec<Host>) -> Self {
        Self {
            client,
            hosts,
            asked: AtomicU64::new(0),
        }
    }

    fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// How many servers the ensemble has, as its configuration says.
    async fn members(&self) -> Option<usize> {
        self.ask();
        let (config, _) = self.client.get_data("/zookeeper/config").await.ok()?;
        let config = String::from_utf8(config).ok()?;
        let servers = config.lines().filter(|line| line.starts_with("server."));
        Some(servers.count().max(1))
    }
}

#[async_trait]
impl Probe for Asker {
    async fn ping(&self) -> Result<(), Failure> {
        self.ask();
        self.client.check_stat("/").await.map(drop).map_err(failure)
    }

    /// Packets that came to the servers of the URL, with the heartbeats of sessions: each client is
    /// connected to one of them.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        let mut received = 0;
        for host in &self.hosts {
            // A word counts like a request, and before it is answered.
            self.ask();
            let Some(values) = srvr(address(host)).await else {
                return Ok(None);
            };
            let Ok(packets) = values["Received"].parse::<u64>() else {
                return Ok(None);
            };
            received += packets;
        }
        Ok(Some(
            received.saturating_sub(self.asked.load(Ordering::Relaxed)),
        ))
    }

    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut facts = BTreeMap::new();
        let mut add = |name: &str, value: String| facts.insert(name.to_owned(), value);
        self.ask();
        let first = match self.hosts.first() {
            Some(host) => srvr(address(host)).await,
            None => None,
        };
        let version = first
            .as_ref()
            .and_then(|values| values.get("Zookeeper version"));
        // Behind the comma is when it was built.
        let version = version.and_then(|version| version.split([',', '-']).next());
        add(
            "version",
            match version {
                Some(version) => format!("ZooKeeper {version}"),
                None => "not told: srvr is not among its four-letter words".to_owned(),
            },
        );
        if let Some(members) = self.members().await {
            add("servers", members.to_string());
        }
        let session = self.client.session_timeout();
        add(
            "session-timeout",
            humantime::format_duration(session).to_string(),
        );
        add(
            "durability",
            "the log is synced, unless forceSync=no, which clients are not told".to_owned(),
        );
        add(
            "commands",
            match first {
                Some(_) => "packets received, with the heartbeats of sessions".to_owned(),
                None => "not counted".to_owned(),
            },
        );
        Ok(facts)
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
