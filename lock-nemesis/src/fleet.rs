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
    ZooKeeperOptions, ZooKeeperServer,
};
use tempfile::TempDir;

use crate::backend::Backend;
use crate::faults::replies;

/// The servers of one backend, each on a host of its own.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) servers: Servers,
    hosts: Vec<NetworkHost>,
}

#[derive(Debug)]
pub(crate) enum Servers {
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
    pub(crate) fn start(backend: Backend, network: &Network) -> io::Result<Self> {
        let hosts = |count: usize| -> Vec<NetworkHost> {
            let name = |n: usize| format!("server-{n}");
            (0..count).map(|n| network.host(&name(n))).collect()
        };
        let hosts = hosts(match backend {
            Backend::Cluster => 6,
            Backend::Etcd | Backend::Quorum | Backend::Sentinel | Backend::ZooKeeper => 3,
            Backend::Sqlite => 0,
            _ => 1,
        });
        let each: Vec<_> = hosts.iter().collect();
        let persistent = RedisOptions::new()
            .with_aof(Fsync::EverySecond)
            .with_clock();
        let servers = match backend {
            Backend::Cluster => {
                Servers::Cluster(RedisCluster::start_on(&each[..3], &each[3..], &persistent))
            }
            Backend::Etcd => {
                let hosts = [0, 1, 2].map(|at| Some(hosts[at].clone()));
                let options = EtcdOptions::new().on_disk();
                Servers::Etcd(EtcdServer::cluster_on(&hosts, &options))
            }
            Backend::MariaDbAdvisory | Backend::MariaDbLease | Backend::MariaDbRow => {
                let options = MariaDbOptions::new().with_clock().with_host(each[0]);
                Servers::MariaDb(MariaDbServer::start(options))
            }
            Backend::PostgresAdvisory | Backend::PostgresLease | Backend::PostgresRow => {
                let options = PostgresOptions::new().with_clock().with_host(each[0]);
                Servers::Postgres(PostgresServer::start(options))
            }
            Backend::Quorum => {
                let start =
                    |host: &&NetworkHost| RedisServer::start(persistent.clone().with_host(host));
                Servers::Quorum(each.iter().map(start).collect())
            }
            Backend::Redis => Servers::Redis(RedisServer::start(persistent.with_host(each[0]))),
            Backend::Sentinel => {
                let (servers, sentinels) = ([each[0], each[1]], [each[0], each[1], each[2]]);
                let started = RedisSentinels::start_on(servers, sentinels, &persistent);
                Servers::Sentinel(started)
            }
            Backend::Sqlite => Servers::Sqlite(tempfile::tempdir()?),
            Backend::ZooKeeper => {
                // A leader without its followers leads on for 10 s, as with the limits of the package.
                let options = ZooKeeperOptions::new()
                    .with_config("syncLimit", "20")
                    .with_clock();
                Servers::ZooKeeper(ZooKeeperEnsemble::start_on(&each, &options))
            }
        };
        Ok(Self { servers, hosts })
    }

    pub(crate) fn url(&self) -> String {
        match &self.servers {
            Servers::Cluster(cluster) => cluster.url(),
            Servers::MariaDb(server) => server.url(),
            Servers::Postgres(server) => server.url(),
            Servers::Etcd(_) => format!("etcd://{}", self.addresses()),
            Servers::Quorum(_) => format!("redlock://{}", self.addresses()),
            Servers::Redis(server) => server.url(),
            Servers::Sentinel(sentinels) => sentinels.url(),
            Servers::Sqlite(dir) => format!("sqlite:{}", dir.path().join("locks").display()),
            Servers::ZooKeeper(ensemble) => ensemble.url(),
        }
    }

    fn addresses(&self) -> String {
        let servers = self.servers().into_iter();
        servers
            .map(ServerProcess::address)
            .collect::<Vec<_>>()
            .join(",")
    }

    pub(crate) fn hosts(&self) -> &[NetworkHost] {
        &self.hosts
    }

    pub(crate) fn servers(&self) -> Vec<&ServerProcess> {
        fn all<S: Deref<Target = ServerProcess>>(servers: &[S]) -> Vec<&ServerProcess> {
            servers.iter().map(Deref::deref).collect()
        }
        match &self.servers {
            Servers::Cluster(cluster) => all(cluster),
            Servers::Etcd(servers) => all(servers),
            Servers::MariaDb(server) => vec![server],
            Servers::Postgres(server) => vec![server],
            Servers::Quorum(nodes) => all(nodes),
            Servers::Redis(server) => vec![server],
            Servers::Sentinel(sentinels) => all(sentinels.servers()),
            Servers::Sqlite(_) => Vec::new(),
            Servers::ZooKeeper(ensemble) => all(ensemble.servers()),
        }
    }

    /// Starts a proxy on this host in front of each server, and returns the URL that leads through
    /// them.
    pub(crate) fn proxies(&self, backend: Backend, host: &NetworkHost) -> (Vec<Proxy>, String) {
        let mut url = self.url();
        if !replies::has_proxies(backend) {
            return (Vec::new(), url);
        }
        let wire = match backend {
            Backend::Quorum | Backend::Redis => Wire::Resp,
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
        let Servers::ZooKeeper(ensemble) = &self.servers else {
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
        if let Servers::Sentinel(sentinels) = &self.servers {
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
            Servers::ZooKeeper(ensemble) => {
                let leads = |server: &ZooKeeperServer| server.mode().as_deref() == Some("leader");
                ensemble.servers().iter().position(leads)
            }
            Servers::Sentinel(sentinels) => {
                let leads = |server: &RedisServer| {
                    let role = server.try_command(&["ROLE"]).ok()?;
                    role.items().first()?.text()
                };
                let servers = sentinels.servers().iter();
                servers
                    .map(leads)
                    .position(|role| role.as_deref() == Some("master"))
            }
            _ => None,
        }
    }
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
