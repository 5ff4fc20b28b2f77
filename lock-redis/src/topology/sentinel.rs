use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{Call, Done};
use super::connector::Connectors;
use super::context::ConnectionContext;
use super::contract::Topology;
use super::known_sentinels::KnownSentinels;
use super::node::RedisNode;
use super::on_demand::OnDemand;
use super::sentinel_events::follow;
use super::sentinel_reports::{MasterState, Reports};
use crate::config::{Endpoint, RedisConfig};
use crate::error::{RedisCause, RedisFailure};
use crate::locked;
use polylock_core::engine::{Moment, before};

/// The master that Sentinels name.
///
/// A server is used only after its `ROLE` is master. A broken connection, silence, a refused write or a
/// message of a Sentinel raises a doubt, and the Sentinels are queried again.
///
/// A master that is partitioned with a minority of the Sentinels does not know that the others promote a
/// replica. Its grants and renewals count only if a majority of the Sentinels names it afterwards.
/// Replica acks cannot replace that: they do not say which replicas acknowledged, nor how many exist.
#[derive(Debug)]
pub(super) struct Sentinel {
    master: Arc<Master>,
    /// Ends the tasks that follow the Sentinels.
    _followers: watch::Sender<()>,
}

/// Which server is the master.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) name: Arc<str>,
    /// Those of the configuration.
    pub(super) sentinels: Vec<Endpoint>,
    pub(super) to_sentinels: Connectors,
    to_masters: Connectors,
    pub(super) shared: Arc<ConnectionContext>,
    current: Arc<OnDemand<Arc<RedisNode>>>,
    /// The master that was verified last, even if it is in doubt.
    last: Mutex<Option<(Endpoint, Arc<RedisNode>)>>,
    /// The followed Sentinels: those of the configuration, and those that they report.
    followed: Mutex<KnownSentinels>,
    pub(super) reports: watch::Sender<Reports>,
    /// Sentinels that were not queried since then must be queried.
    pub(super) wanted: watch::Sender<Moment>,
    /// Closed with the topology.
    pub(super) end: watch::Receiver<()>,
}

impl Sentinel {
    pub(super) fn new(
        config: &RedisConfig,
        sentinels: &[Endpoint],
        name: &str,
        shared: Arc<ConnectionContext>,
    ) -> Self {
        let connectors = Connectors::new(config, &shared);
        let (followers, end) = watch::channel(());
        let configured: HashSet<Endpoint> = sentinels.iter().cloned().collect();
        let master = Arc::new(Master {
            name: name.into(),
            sentinels: sentinels.to_vec(),
            to_sentinels: connectors.to_sentinels(&config.sentinel_login),
            to_masters: connectors.to_masters(),
            current: OnDemand::new(&shared, no_master(name)),
            last: Mutex::default(),
            followed: Mutex::default(),
            reports: watch::Sender::new(Reports::new(configured.len())),
            wanted: watch::Sender::new(Moment::from_nanos(0)),
            end,
            shared,
        });
        for sentinel in configured {
            if master.followed().add(sentinel.clone()) {
                master.follow(sentinel);
            }
        }
        Self {
            master,
            _followers: followers,
        }
    }
}

impl Master {
    /// The address of the master that was verified last.
    pub(super) fn address(&self) -> Option<Endpoint> {
        locked(&self.last)
            .as_ref()
            .map(|(endpoint, _)| endpoint.clone())
    }

    /// Follows a Sentinel that another one reports, unless it is already followed.
    pub(super) fn discover(self: &Arc<Self>, sentinel: Endpoint, identity: &Arc<str>) {
        if self.followed().discover(&sentinel, identity) {
            self.follow(sentinel);
        }
    }

    fn follow(self: &Arc<Self>, sentinel: Endpoint) {
        let following = follow(Arc::clone(self), sentinel);
        self.shared.engine.spawn_service(following);
    }

    fn want(&self, since: Moment) {
        self.wanted.send_if_modified(|wanted| {
            let is_later = since > *wanted;
            *wanted = since.max(*wanted);
            is_later
        });
    }

    /// Queries the Sentinels in the background, so that few grants have to wait for them.
    fn refresh(&self) {
        let now = self.shared.engine.now();
        if now.since(*self.wanted.borrow()) >= REFRESH {
            self.want(now);
        }
    }

    /// A Sentinel reports another master; the other Sentinels are queried as well. Each of them reports
    /// the change when it learns of it, so that the last one of a majority completes the switch. A minority
    /// may be outdated, and does not move the client from a master that replies.
    pub(super) async fn switch(self: &Arc<Self>) {
        match self.elected().await {
            Ok((elected, true)) if self.address().as_ref() != Some(&elected) => {}
            _ => return,
        }
        if let Some(old) = self.current.discard(|_| true) {
            old.hang_up();
        }
        // The next caller retries what fails.
        drop(self.find(self.shared.connect_deadline()).await);
    }

    async fn find(self: &Arc<Self>, deadline: Instant) -> Result<Arc<RedisNode>, RedisFailure> {
        if let Some(node) = self.current.present() {
            return Ok(node);
        }
        let make = || Arc::clone(self).ask();
        // Not on the runtime of the caller, which may be blocked while others wait for the master.
        let spawn = |task| self.shared.engine.spawn_service(task);
        self.current.get(spawn, deadline, make).await
    }

    async fn ask(self: Arc<Self>) -> Result<Arc<RedisNode>, RedisFailure> {
        let asking = async {
            let (endpoint, _) = self.elected().await?;
            // Reports about other servers do not count if this one is not a master yet, or is none any more:
            // by a later request the Sentinels agree.
            self.verify(endpoint).await
        };
        let asked = before(self.shared.connect_deadline(), asking).await;
        asked.unwrap_or_else(|| Err(no_master(&self.name)))
    }

    /// The address that a majority of the Sentinels names, or most of those that reply in time, and whether
    /// that is a majority. Queries all at once.
    async fn elected(&self) -> Result<(Endpoint, bool), RedisFailure> {
        let asked = self.sentinels.iter();
        let mut asked: FuturesUnordered<_> = asked.map(|sentinel| self.ask_one(sentinel)).collect();
        let (mut named, mut why) = (Vec::new(), None);
        let mut until = self.shared.connect_deadline();
        // Partitioned Sentinels do not report that they are.
        let grace = self.shared.connect_timeout.min(self.shared.timeout) / 2;
        let all = self.sentinels.len();
        while !leader(&named, all).is_some_and(|(_, is_decided)| is_decided) {
            match before(until, asked.next()).await {
                None | Some(None) => break,
                Some(Some(Ok(Some(endpoint)))) => {
                    if named.is_empty() {
                        until = until.min(Instant::now() + grace);
                    }
                    named.push(endpoint);
                }
                Some(Some(Ok(None))) => {}
                Some(Some(Err(failure))) => why = Some(failure),
            }
        }
        match leader(&named, all) {
            Some((endpoint, is_decided)) => Ok((endpoint.clone(), is_decided)),
            None => Err(why.unwrap_or_else(|| no_master(&self.name))),
        }
    }

    /// The address that one Sentinel knows, if it knows the master.
    pub(super) async fn ask_one(
        &self,
        sentinel: &Endpoint,
    ) -> Result<Option<Endpoint>, RedisFailure> {
        let mut request = redis::cmd("SENTINEL");
        request.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        let reply = self.to_sentinels.ask_once(sentinel, &request).await?;
        match redis::from_redis_value::<Option<(String, u16)>>(reply) {
            Ok(address) => Ok(address.map(|(host, port)| Endpoint::tcp(host, port))),
            Err(error) => {
                let server = sentinel.to_string().into();
                Err(RedisCause::malformed(&server, error.to_string()).into())
            }
        }
    }

    /// Connects to the reported master; the connection checks its role.
    async fn verify(&self, endpoint: Endpoint) -> Result<Arc<RedisNode>, RedisFailure> {
        let last = locked(&self.last).clone();
        let node = match last {
            Some((known, node)) if known == endpoint => node,
            _ => {
                let connector = self.to_masters.to(&endpoint)?;
                Arc::new(RedisNode::new(connector, Arc::clone(&self.shared)))
            }
        };
        node.open().await?;
        let old = locked(&self.last).replace((endpoint, Arc::clone(&node)));
        if let Some((_, old)) = old
            && !Arc::ptr_eq(&old, &node)
        {
            tracing::debug!(old = %old.server(), new = %node.server(), "another master");
            old.hang_up();
            self.shared.events.on_failover();
        }
        Ok(node)
    }

    pub(super) fn followed(&self) -> MutexGuard<'_, KnownSentinels> {
        locked(&self.followed)
    }
}

/// The master that most replies name, and whether those are a majority of all `sentinels`. In a tie, the
/// master that was named first wins.
///
/// One Sentinel may be outdated, beside a partitioned old master that does not know of its replacement.
fn leader(named: &[Endpoint], sentinels: usize) -> Option<(&Endpoint, bool)> {
    let count = |one: &Endpoint| named.iter().filter(|other| *other == one).count();
    // The last of the largest ones is taken.
    let leader = named.iter().rev().max_by_key(|one| count(one))?;
    Some((leader, 2 * count(leader) > sentinels))
}

fn no_master(name: &str) -> RedisFailure {
    RedisCause::NoMaster { name: name.into() }.into()
}

/// Min interval of queries to the Sentinels in advance of later calls.
const REFRESH: Duration = Duration::from_millis(500);

#[async_trait]
impl Topology for Sentinel {
    async fn open(&self) -> Result<(), RedisFailure> {
        let deadline = self.master.shared.connect_deadline();
        self.master.find(deadline).await.map(drop)
    }

    async fn call(&self, call: Call<'_>) -> Result<Done, RedisFailure> {
        // The query runs while the call does.
        self.master.refresh();
        let deadline = self.master.shared.deadline();
        let node = self.master.find(deadline).await?;
        let done = node.call(call, false, deadline).await;
        done.inspect_err(|failure| self.learn(&node, failure))
    }

    async fn confirm(
        &self,
        done: &Done,
        age: Duration,
        within: Duration,
    ) -> Result<(), RedisFailure> {
        let master = &*self.master;
        let mut reports = master.reports.subscribe();
        let now = master.shared.engine.now();
        let since = now - age;
        let is_confirmed = |reports: &Reports| reports.confirmed(&done.server) >= Some(since);
        if is_confirmed(&reports.borrow()) {
            return Ok(());
        }
        master.want(now);
        let confirmed = reports.wait_for(is_confirmed);
        if let Some(Ok(_)) = before(Instant::now() + within, confirmed).await {
            return Ok(());
        }
        let reports = master.reports.borrow();
        let count = |state| reports.count(&done.server, state, since);
        let cause = RedisCause::Unconfirmed {
            server: Arc::clone(&done.server),
            named: count(MasterState::Up),
            denied: count(MasterState::Hidden),
            sentinels: reports.sentinels(),
        };
        Err(cause.unknown())
    }

    fn is_confirmed(&self, age: Duration) -> bool {
        let Some(node) = self.master.current.present() else {
            return false;
        };
        let since = self.master.shared.engine.now() - age;
        self.master.reports.borrow().confirmed(node.server()) >= Some(since)
    }

    fn confirms(&self) -> bool {
        true
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, RedisFailure> {
        let deadline = self.master.shared.deadline();
        let node = self.master.find(deadline).await?;
        let channel = node.channel(deadline).await;
        channel.inspect_err(|failure| self.learn(&node, failure))
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        self.master.current.present()?.subscribed()
    }

    async fn masters(&self) -> Result<Vec<Arc<RedisNode>>, RedisFailure> {
        let master = self.master.find(self.master.shared.deadline()).await?;
        Ok(vec![master])
    }

    fn learn(&self, node: &Arc<RedisNode>, failure: &RedisFailure) {
        let demoted = failure.is_of_replica();
        if demoted || failure.refusal().is_none() {
            let current = &self.master.current;
            current.discard(|current| Arc::ptr_eq(current, node));
        }
        if demoted {
            // Last: a closed subscription starts renewals, which must not find the demoted server. The next
            // connection finds out by ROLE.
            node.hang_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

    use lock_testkit::locks::until;
    use lock_testkit::servers::{RedisOptions, RedisSentinels, RedisServer};
    use polylock_core::engine::Engine;

    use super::super::connection_events::{ConnectionEvents, NoEvents};
    use super::super::tests::{config, refused_with};
    use super::*;
    use crate::error::Refusal;

    /// Whether a client has a master when its subscription ends, each time.
    #[derive(Debug, Default)]
    struct Interruptions {
        client: OnceLock<Weak<Master>>,
        has_master: Mutex<Vec<bool>>,
    }

    impl ConnectionEvents for Interruptions {
        fn on_message(&self, _payload: &[u8]) {}

        fn on_disconnect(&self) {
            let client = self.client.get().and_then(Weak::upgrade);
            let has_master = client.is_some_and(|client| client.current.present().is_some());
            self.has_master.lock().unwrap().push(has_master);
        }
    }

    impl Interruptions {
        fn take(&self) -> Vec<bool> {
            std::mem::take(&mut *self.has_master.lock().unwrap())
        }
    }

    /// A client that reaches no Sentinel.
    fn client(server: &RedisServer) -> (Sentinel, Arc<Interruptions>) {
        let (config, ends) = (config(server), Arc::<Interruptions>::default());
        let (events, engine) = (Arc::clone(&ends), Engine::of_this_process("redis"));
        let shared = ConnectionContext::new(&config, events, &engine);
        let sentinels = [Endpoint::tcp("127.0.0.1", 1)];
        let sentinel = Sentinel::new(&config, &sentinels, "main", Arc::new(shared));
        let client = ends.client.set(Arc::downgrade(&sentinel.master));
        client.expect("it is set once");
        (sentinel, ends)
    }

    /// Makes the server the master of a client, and subscribes to it.
    async fn subscribed(sentinel: &Sentinel, server: &RedisServer) -> Arc<RedisNode> {
        let master = &sentinel.master;
        let endpoint = Endpoint::tcp("127.0.0.1", server.port());
        let node = master.verify(endpoint).await.expect("it is a master");
        let spawn = |task| drop(tokio::spawn(task));
        let make = || {
            let node = Arc::clone(&node);
            async move { Ok(node) }
        };
        let deadline = master.shared.connect_deadline();
        let made = master.current.get(spawn, deadline, make).await;
        made.expect("it is there");
        sentinel.channel().await.unwrap().expect("RESP3 pushes");
        node
    }

    /// A closed subscription starts renewals.
    #[tokio::test]
    async fn a_demoted_master_is_discarded_before_its_connections_close() {
        let server = RedisServer::start(RedisOptions::new());
        let (sentinel, ends) = client(&server);
        for refusal in [Refusal::ReadOnly, Refusal::MasterDown, Refusal::Demoted] {
            let node = subscribed(&sentinel, &server).await;
            sentinel.learn(&node, &refused_with(refusal));
            assert_eq!(ends.take(), [false], "{refusal:?}");
            assert!(sentinel.master.current.present().is_none(), "{refusal:?}");
        }
    }

    #[tokio::test]
    async fn a_silent_master_is_discarded_and_keeps_its_connections() {
        let server = RedisServer::start(RedisOptions::new());
        let (sentinel, ends) = client(&server);
        let node = subscribed(&sentinel, &server).await;
        sentinel.learn(&node, &refused_with(Refusal::NoPerm));
        assert!(sentinel.subscribed().is_some(), "it may be a master");
        let silent = RedisFailure::silent(node.server(), Duration::from_secs(1), true);
        sentinel.learn(&node, &silent);
        assert!(sentinel.master.current.present().is_none());
        assert!(node.subscribed().is_some(), "it may reply again");
        assert!(ends.take().is_empty(), "a connection is closed");
    }

    /// A request to it has taken long.
    #[tokio::test]
    async fn the_failure_of_a_former_master_does_not_concern_the_next() {
        let server = RedisServer::start(RedisOptions::new());
        let (sentinel, ends) = client(&server);
        let master = &sentinel.master;
        let former = master.to_masters.to(&Endpoint::tcp("127.0.0.1", 1));
        let former = former.expect("nothing is connected yet");
        let former = Arc::new(RedisNode::new(former, Arc::clone(&master.shared)));
        subscribed(&sentinel, &server).await;
        let silent = RedisFailure::silent(former.server(), Duration::from_secs(1), true);
        for failure in [silent, refused_with(Refusal::ReadOnly)] {
            sentinel.learn(&former, &failure);
            assert!(sentinel.subscribed().is_some(), "{failure:?}");
        }
        assert!(ends.take().is_empty(), "a connection is closed");
    }

    /// Makes a Sentinel name another master.
    fn name(sentinel: &RedisServer, master: &RedisServer) {
        let (name, port) = (RedisSentinels::MASTER, master.port().to_string());
        let steps: [&[&str]; 2] = [
            &["REMOVE", name],
            &["MONITOR", name, "127.0.0.1", &port, "2"],
        ];
        for step in steps {
            let mut words = vec!["SENTINEL"];
            words.extend(step);
            let done = sentinel.command(&words);
            assert_eq!(done.text().as_deref(), Some("OK"), "{words:?}: {done:?}");
        }
    }

    #[tokio::test]
    async fn a_client_is_moved_by_a_majority_alone() {
        let servers = RedisSentinels::start_light();
        let other = RedisServer::start(RedisOptions::new());
        let second = Duration::from_secs(1);
        let config = config(servers.master()).with_timeout(second);
        let config = config.and_then(|config| config.with_connect_timeout(second));
        let config = config.expect("they are in range");
        let engine = Engine::of_this_process("redis");
        let shared = ConnectionContext::new(&config, Arc::new(NoEvents), &engine);
        let ports = servers.ports().into_iter();
        let endpoints: Vec<_> = ports.map(|port| Endpoint::tcp("127.0.0.1", port)).collect();
        let named = RedisSentinels::MASTER;
        let sentinel = Sentinel::new(&config, &endpoints, named, Arc::new(shared));
        sentinel.open().await.expect("it connects");
        let master = &sentinel.master;
        let at = |server: &RedisServer| Some(Endpoint::tcp("127.0.0.1", server.port()));

        // The only Sentinel that replies.
        name(&servers.sentinels()[0], &other);
        for sentinel in &servers.sentinels()[1..] {
            sentinel.stop();
        }
        master.switch().await;
        assert_eq!(master.address(), at(&servers.servers()[0]));

        let next = &servers.sentinels()[1];
        next.resume();
        name(next, &other);
        until("a majority moves it", async || {
            master.switch().await;
            master.address() == at(&other)
        })
        .await;
    }

    #[test]
    fn a_majority_of_all_decides_and_else_most_of_those_that_answer_lead() {
        for (sentinels, said, expected) in [
            (3, &[][..], None),
            (1, &[1], Some((1, true))),
            (3, &[1], Some((1, false))),
            (3, &[1, 2], Some((1, false))),
            (3, &[1, 2, 2], Some((2, true))),
            (4, &[2, 1, 2, 1], Some((2, false))),
            (5, &[1, 2, 2], Some((2, false))),
        ] {
            let at = |port: &u16| Endpoint::tcp("a", *port);
            let named: Vec<_> = said.iter().map(at).collect();
            let expected = expected.map(|(port, is_decided)| (at(&port), is_decided));
            let found = leader(&named, sentinels);
            let found = found.map(|(leader, is_decided)| (leader.clone(), is_decided));
            assert_eq!(found, expected, "{said:?} of {sentinels}");
        }
    }
}
