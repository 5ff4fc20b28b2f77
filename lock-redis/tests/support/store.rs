use std::sync::Arc;

use async_trait::async_trait;
use lock_testkit::harness::{Faults, Harness, Look};
use lock_testkit::proxy::{Across, FaultPlan, Proxy};
use lock_testkit::servers::{
    ClientCertificate, RedisCluster, RedisOptions, RedisSentinels, RedisServer, ServerCertificate,
    TestCertificates,
};
use lock_testkit::taker::Taker;
use polylock_core::layers::Prefix;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};
use polylock_redis::RedisConfig;

use super::place::look;
use super::requests::{kind_of, load_scripts};
use super::{SOON, of_cluster, of_sentinels, open, rights};

/// One of the ways to run Redis, for the conformance suite.
#[derive(Debug)]
pub(crate) struct Store {
    servers: Servers,
    config: RedisConfig,
    /// Leads a lock-taker to the same keys.
    url: String,
    namespace: Option<&'static str>,
    faults: Option<FaultPlan>,
}

#[derive(Debug)]
enum Servers {
    Cluster(RedisCluster),
    Sentinels(RedisSentinels),
    Single(RedisServer),
    Tls(
        RedisServer,
        #[expect(dead_code, reason = "keeps the files")] TestCertificates,
    ),
}

impl Servers {
    fn all(&self) -> &[RedisServer] {
        match self {
            Self::Cluster(cluster) => cluster,
            Self::Sentinels(sentinels) => sentinels.servers(),
            Self::Single(server) | Self::Tls(server, _) => std::slice::from_ref(server),
        }
    }

    /// The server that has a key.
    fn of(&self, name: &str) -> &RedisServer {
        match self {
            Self::Cluster(cluster) => &cluster[cluster.owner_of(cluster.slot_of(name))],
            Self::Sentinels(_) | Self::Single(_) | Self::Tls(..) => &self.all()[0],
        }
    }
}

impl Store {
    /// One server.
    pub(crate) fn single() -> Self {
        let server = RedisServer::start(RedisOptions::new());
        let proxy = Proxy::start(server.port());
        let config = RedisConfig::new("127.0.0.1", proxy.port());
        let url = format!("{}?namespace=", server.url());
        Self::behind(Servers::Single(server), vec![proxy], config, url)
    }

    /// One server with a user who may do what `rights` lists, and no more.
    pub(crate) fn with_least_rights() -> Self {
        let rules = rights::user("secret", "lock:*");
        let options = RedisOptions::new().with_user("locks", &rules);
        let server = RedisServer::start(options.with_config("user", "default off"));
        let proxy = Proxy::start(server.port());
        let config = RedisConfig::new("127.0.0.1", proxy.port()).with_login("locks", "secret");
        let url = format!("redis://locks:secret@127.0.0.1:{}", server.port());
        let mut store = Self::behind(Servers::Single(server), vec![proxy], config, url);
        store.namespace = Some("lock");
        store
    }

    /// One server that takes TLS only, and asks for a certificate. The proxy cannot read that.
    pub(crate) fn with_tls() -> Self {
        let files = TestCertificates::new(ServerCertificate::Valid);
        let options = RedisOptions::new().with_tls(&files, ClientCertificate::Required);
        let server = RedisServer::start(options);
        let (ca, cert) = (files.ca(), files.client_certificate());
        let key = files.client_key();
        let url = format!(
            "{}?namespace=&timeout=5s&connect-timeout=5s&tls-ca-file={}&tls-cert-file={}&tls-key-file={}",
            server.url(),
            ca.display(),
            cert.display(),
            key.display(),
        );
        let config = RedisConfig::new("127.0.0.1", server.port());
        let config = config.with_tls_ca(ca).with_tls_identity(cert, key);
        // Handshakes of a build for tests take their time on a busy machine.
        let config = config.with_timeout(SOON).expect("it is in range");
        let config = config.with_connect_timeout(SOON).expect("it is in range");
        Self {
            servers: Servers::Tls(server, files),
            config,
            url,
            namespace: None,
            faults: None,
        }
    }

    /// A master that Sentinels watch.
    pub(crate) fn sentinels() -> Self {
        let (sentinels, proxy) = RedisSentinels::start_light_behind_proxy();
        let config = of_sentinels(&sentinels);
        let url = format!("{}?namespace=", sentinels.url());
        Self::behind(Servers::Sentinels(sentinels), vec![proxy], config, url)
    }

    /// A cluster of three masters.
    pub(crate) fn cluster() -> Self {
        let (cluster, proxies) = RedisCluster::start_behind_proxies(3, 0);
        let config = of_cluster(&cluster);
        let url = format!("{}?namespace=", cluster.url());
        Self::behind(Servers::Cluster(cluster), proxies, config, url)
    }

    fn behind(servers: Servers, proxies: Vec<Proxy>, config: RedisConfig, url: String) -> Self {
        servers.all().iter().for_each(load_scripts);
        let faults = FaultPlan::new(proxies, Across::Any, kind_of);
        Self {
            servers,
            config,
            url,
            namespace: None,
            faults: Some(faults),
        }
    }

    fn name(&self, key: &LockKey) -> String {
        match self.namespace {
            Some(namespace) => format!("{namespace}:{key}"),
            None => key.to_string(),
        }
    }
}

#[async_trait]
impl Harness for Store {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let locks = open(self.config.clone()).await;
        match self.namespace {
            Some(namespace) => Arc::new(Prefix::new(locks, namespace).expect("it is a namespace")),
            None => locks,
        }
    }

    fn faults(&self) -> Option<&dyn Faults> {
        self.faults.is_some().then_some(self as &dyn Faults)
    }

    fn taker(&self) -> Option<Taker> {
        Some(Taker::example("redis-taker", self.url.clone()))
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let name = self.name(key);
        Some(look(self.servers.of(&name), &name))
    }
}

#[async_trait]
impl Faults for Store {
    fn plan(&self, request: Request, fault: Fault) {
        self.plans().plan(request, fault);
    }

    fn pending(&self) -> Option<usize> {
        Some(self.plans().pending())
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.plans().set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        let name = self.name(key);
        self.servers.of(&name).command(&["DEL", &name]);
    }

    fn duplicates(&self) -> bool {
        true
    }
}

impl Store {
    fn plans(&self) -> &FaultPlan {
        self.faults.as_ref().expect("there is a proxy")
    }
}
