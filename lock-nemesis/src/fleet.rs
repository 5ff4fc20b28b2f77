//! The servers of a backend on their hosts.

use std::fs;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::network::{Network, NetworkHost};
use lock_testkit::proxy::{Proxy, Wire};
use lock_testkit::servers::{
    EtcdOptions, EtcdServer, Fsync, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer,
    RedisCluster, RedisOptions, RedisSentinels, RedisServer, ServerProcess, ZooKeeperEnsemble,
    ZooKeeperOptions, ZooKeeperServer, data_dir,
};
use tempfile::TempDir;

use crate::backend::BackendKind;

/// The servers of one backend, each on a host of its own.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) servers: FleetServers,
}

#[derive(Debug)]
pub(crate) enum FleetServers {
    Cluster(RedisCluster),
    Etcd(Vec<EtcdServer>),
    MariaDb(MariaDbServer),
    Postgres(PostgresServer),
    Quorum(Vec<RedisServer>),
    Redis(RedisServer),
    Sentinel(RedisSentinels),
    Sqlite(TempDir),
    ZooKeeper(ZooKeeperEnsemble),
}

impl Fleet {
    pub(crate) fn start(backend: BackendKind, network: &Network) -> io::Result<Self> {
        let host = |n: usize| network.host(&format!("server-{n}"));
        let persistent = RedisOptions::new()
            .with_aof(Fsync::EverySecond)
            .with_clock();
        let servers = match backend {
            BackendKind::Cluster => {
                let hosts = [0, 1, 2, 3, 4, 5].map(host);
                let (masters, replicas) = (&hosts.each_ref()[..3], &hosts.each_ref()[3..]);
                FleetServers::Cluster(RedisCluster::start_on(masters, replicas, &persistent))
            }
            BackendKind::Etcd => {
                let hosts = [0, 1, 2].map(|n| Some(host(n)));
                FleetServers::Etcd(EtcdServer::cluster_on(&hosts, &EtcdOptions::new()))
            }
            BackendKind::MariaDbAdvisory | BackendKind::MariaDbLease | BackendKind::MariaDbRow => {
                let options = MariaDbOptions::new().with_clock().with_host(&host(0));
                FleetServers::MariaDb(MariaDbServer::start(options))
            }
            BackendKind::PostgresAdvisory
            | BackendKind::PostgresLease
            | BackendKind::PostgresRow => {
                let options = PostgresOptions::new().with_clock().with_host(&host(0));
                FleetServers::Postgres(PostgresServer::start(options))
            }
            BackendKind::Quorum => {
                let start = |n| RedisServer::start(persistent.clone().with_host(&host(n)));
                FleetServers::Quorum([0, 1, 2].map(start).into())
            }
            BackendKind::Redis => {
                FleetServers::Redis(RedisServer::start(persistent.with_host(&host(0))))
            }
            BackendKind::Sentinel => {
                let hosts = [0, 1, 2].map(host);
                let [a, b, c] = hosts.each_ref();
                let started = RedisSentinels::start_on([a, b], [a, b, c], &persistent);
                FleetServers::Sentinel(started)
            }
            BackendKind::Sqlite => FleetServers::Sqlite(tempfile::tempdir_in(data_dir())?),
            BackendKind::ZooKeeper => {
                // A leader without its followers leads on for 10 s, as with the limits of the package.
                let options = ZooKeeperOptions::new()
                    .with_config("syncLimit", "20")
                    .with_clock();
                let hosts = [0, 1, 2].map(host);
                FleetServers::ZooKeeper(ZooKeeperEnsemble::start_on(&hosts.each_ref(), &options))
            }
        };
        Ok(Self { servers })
    }

    pub(crate) fn url(&self) -> String {
        match &self.servers {
            FleetServers::Cluster(cluster) => cluster.url(),
            FleetServers::MariaDb(server) => server.url(),
            FleetServers::Postgres(server) => server.url(),
            FleetServers::Etcd(_) => format!("etcd://{}", self.addresses()),
            FleetServers::Quorum(_) => format!("redlock://{}", self.addresses()),
            FleetServers::Redis(server) => server.url(),
            FleetServers::Sentinel(sentinels) => sentinels.url(),
            FleetServers::Sqlite(dir) => format!("sqlite:{}", dir.path().join("locks").display()),
            FleetServers::ZooKeeper(ensemble) => ensemble.url(),
        }
    }

    fn addresses(&self) -> String {
        let servers = self.servers().into_iter();
        servers
            .map(ServerProcess::address)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Those of the servers, in their order, and one that has a Sentinel alone.
    pub(crate) fn hosts(&self) -> Vec<NetworkHost> {
        let servers = match &self.servers {
            FleetServers::Sentinel(sentinels) => all(sentinels.sentinels()),
            _ => self.servers(),
        };
        let hosts = servers.into_iter().filter_map(ServerProcess::host);
        hosts.cloned().collect()
    }

    pub(crate) fn servers(&self) -> Vec<&ServerProcess> {
        match &self.servers {
            FleetServers::Cluster(cluster) => all(cluster),
            FleetServers::Etcd(servers) => all(servers),
            FleetServers::MariaDb(server) => vec![server],
            FleetServers::Postgres(server) => vec![server],
            FleetServers::Quorum(nodes) => all(nodes),
            FleetServers::Redis(server) => vec![server],
            FleetServers::Sentinel(sentinels) => all(sentinels.servers()),
            FleetServers::Sqlite(_) => Vec::new(),
            FleetServers::ZooKeeper(ensemble) => all(ensemble.servers()),
        }
    }

    /// Starts a proxy on this host in front of each server, and returns the URL that leads through
    /// them.
    pub(crate) fn proxies(&self, backend: BackendKind, host: &NetworkHost) -> (Vec<Proxy>, String) {
        let mut url = self.url();
        if !has_proxies(backend) {
            return (Vec::new(), url);
        }
        let wire = match backend {
            BackendKind::Quorum | BackendKind::Redis => Wire::Resp,
            _ => Wire::Bytes,
        };
        let proxies = self.servers().into_iter().map(|server| {
            let address = server.address();
            let target = address.parse().expect("BUG: servers have addresses");
            let proxy = Proxy::on_host(host, target, wire);
            url = url.replace(&address, &proxy.address().to_string());
            proxy
        });
        (proxies.collect(), url)
    }

    /// Kills a server if it runs, and starts it again with what it has on its disk.
    pub(crate) fn restart(&self, place: usize) {
        let server = self.servers()[place];
        let manifest = server
            .dir()
            .join(APPEND_ONLY)
            .join("appendonly.aof.manifest");
        if manifest.exists() {
            server.kill();
            repair(&manifest);
        }
        server.restart();
    }

    /// Waits until a server of ZooKeeper leads or follows, unless a fault keeps it from that.
    pub(crate) fn wait_until_serves(&self, place: usize) {
        let FleetServers::ZooKeeper(ensemble) = &self.servers else {
            return;
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while ensemble.servers()[place].mode().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills and restarts all servers at once.
    pub(crate) fn restart_all(&self) {
        thread::scope(|scope| {
            for place in 0..self.servers().len() {
                scope.spawn(move || self.restart(place));
            }
        });
    }

    /// The same without what it has on its disk.
    pub(crate) fn restart_empty(&self, place: usize) -> io::Result<()> {
        let server = self.servers()[place];
        server.kill();
        fs::remove_dir_all(server.dir().join(APPEND_ONLY))?;
        server.restart();
        Ok(())
    }

    /// The same with all servers of a host.
    pub(crate) fn restart_host(&self, place: usize) {
        if place < self.servers().len() {
            self.restart(place);
        }
        if let FleetServers::Sentinel(sentinels) = &self.servers {
            sentinels.sentinels()[place].restart();
        }
    }

    /// The places of the servers that another fault has not killed.
    pub(crate) fn running(&self) -> Vec<usize> {
        let servers = self.servers();
        let runs = |place: &usize| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", servers[*place].pid()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        (0..servers.len()).filter(runs).collect()
    }

    /// The place of the server that grants locks, if one alone does.
    pub(crate) fn leader(&self) -> Option<usize> {
        match &self.servers {
            FleetServers::ZooKeeper(ensemble) => {
                let leads = |server: &ZooKeeperServer| server.mode().as_deref() == Some("leader");
                ensemble.servers().iter().position(leads)
            }
            FleetServers::Sentinel(sentinels) => {
                let leads = |server: &RedisServer| server.role().as_deref() == Some("master");
                sentinels.servers().iter().position(leads)
            }
            _ => None,
        }
    }
}

fn all<S: Deref<Target = ServerProcess>>(servers: &[S]) -> Vec<&ServerProcess> {
    servers.iter().map(Deref::deref).collect()
}

/// Whether some clients connect through proxies. Where servers refer clients to each other, clients
/// would bypass them.
pub(crate) fn has_proxies(backend: BackendKind) -> bool {
    !matches!(
        backend,
        BackendKind::Cluster | BackendKind::Sentinel | BackendKind::Sqlite
    )
}

/// Truncates a command of Redis that a full disk left incomplete, as an operator does: the server
/// would refuse to start.
fn repair(manifest: &Path) {
    let repaired = Command::new("sh")
        .args(["-c", "yes | redis-check-aof --fix \"$0\""])
        .arg(manifest)
        .output();
    // The next start shows whether it helped.
    repaired.ok();
}

const APPEND_ONLY: &str = "appendonlydir";
