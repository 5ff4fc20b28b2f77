//! A lock that lives with a session: ephemeral, sequential nodes, each watching the one before it.

mod admin;
mod lease;
mod recipe;
mod server;
mod session;
mod tree;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::engine::Engine;
use lock_core::layers::in_order;
use lock_core::memory::{Fault, Reachable, Request};
use lock_core::{
    AcquireRequest, Bound, Capabilities, DistributedLock, Error, ErrorKind, Fencing, FencingToken,
    Grant, Lease, LockGuard, LockKey, Result, Waiting,
};
use tokio::sync::Mutex;

use super::wire::{Budget, broken, contended};
use crate::harness::{Faults, Harness, Look};

use self::lease::ZkLease;
use self::recipe::{Standing, holders, standing};
use self::server::Server;
use self::session::Session;
use self::tree::{Contender, Expired};

/// An ensemble in this process and a client of it.
///
/// A lock has no time limit while its session is connected. Disconnected, it is in doubt and lost
/// after half the session time-out; connected again, it is confirmed if its node is there. The end
/// of the session ends all of its locks, and a client that lost its session opens another one. Who
/// deletes a node breaks the lock.
pub struct ZkLike {
    server: Arc<Server>,
    session: Mutex<Option<Arc<Session>>>,
    engine: Engine,
}

const NAME: &str = "zk-like";

/// Time without a word after which the server ends a session.
const TIMEOUT: Duration = Duration::from_secs(1);

impl ZkLike {
    /// Starts an ensemble.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Server::start())
    }

    fn on(server: Arc<Server>) -> Self {
        Self {
            server,
            session: Mutex::default(),
            engine: Engine::of_this_process(NAME),
        }
    }

    /// The session of this client; a new one, if it has none that lives.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut session = self.session.lock().await;
        if let Some(live) = session.as_ref().filter(|session| !session.is_over()) {
            return Ok(Arc::clone(live));
        }
        let opened = Session::open(&self.server, &self.engine).await?;
        Ok(Arc::clone(session.insert(opened)))
    }

    async fn create(&self, session: &Session, key: &LockKey, contender: &Contender) -> Result<()> {
        let create = || self.server.create(session.id, key, contender);
        match self.server.wire.call(Request::Acquire, create).await? {
            Ok(()) => Ok(()),
            Err(Expired) => Err(broken("the session has ended")),
        }
    }

    /// Waits until nobody is before the contender; the token that proves it.
    async fn wait(
        &self,
        request: &AcquireRequest,
        session: &Session,
        contender: &Contender,
        budget: Budget,
    ) -> Result<FencingToken> {
        let key = request.key();
        loop {
            let list = self.server.wire.send(|| self.server.children(key));
            let children = budget.bound(list).await?;
            let blocker = match standing(&children.nodes, contender.id) {
                Standing::Gone => return Err(broken("the node of the contender is gone")),
                Standing::Holds => {
                    let token = Some(children.pzxid);
                    self.server.set_token(key, contender.id, token);
                    return Ok(FencingToken::new(children.pzxid));
                }
                Standing::Behind(_) if !Budget::waits(request) => {
                    return Err(contended(request));
                }
                Standing::Behind(blocker) => blocker,
            };
            request.note_held();
            let watch = self.server.wire.send(|| self.server.watch(key, blocker));
            let gone = budget.bound(watch).await?;
            tokio::select! {
                // A watch that is lost while the client is disconnected costs this pause.
                _ = tokio::time::timeout(budget.left(TIMEOUT / 3), gone) => {}
                () = session.ended() => return Err(broken("the session ended meanwhile")),
            }
            if budget.is_over() {
                return Err(contended(request));
            }
        }
    }
}

impl Default for ZkLike {
    fn default() -> Self {
        Self::new()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for ZkLike {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::least(NAME);
        capabilities.admin = true;
        capabilities.bound = Bound::Session;
        capabilities.fair = true;
        capabilities.fencing = Fencing::Strong;
        capabilities.shared = true;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let (key, budget) = (request.key(), Budget::of(request));
        let named = |e: Error| e.with_backend(NAME).with_key(key);
        let session = budget.bound(self.session()).await.map_err(named)?;
        let id = self.engine.lease_id();
        let (mode, label) = (request.mode(), request.label().clone());
        let contender = Contender {
            id,
            mode,
            label,
            token: None,
        };
        let lease: Arc<dyn Lease> = Arc::new(ZkLease::new(Arc::clone(&session), key, id));
        let pending = self.engine.pending(key, Arc::clone(&lease), request.ttl());
        let sent = self.engine.now();
        let created = budget.bound(self.create(&session, key, &contender)).await;
        created.map_err(named)?;
        match self
            .wait(request, &session, &contender, budget)
            .await
            .map_err(named)
        {
            Ok(token) => pending.granted(request, Grant::new(sent, Some(token))),
            Err(error) => {
                // A node that is left until the background comes to it is in others' way.
                if error.kind() == ErrorKind::Contended && lease.release().await.is_ok() {
                    pending.disarm();
                }
                Err(error)
            }
        }
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<Vec<LockGuard>> {
        in_order(self, requests).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

#[async_trait]
impl Harness for ZkLike {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self::on(Arc::clone(&self.server)))
    }

    fn shortest_ttl(&self) -> Duration {
        TIMEOUT
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let nodes = self.server.children(key).nodes;
        let holders = holders(&nodes).count();
        Some(Look::new(holders, nodes.len() - holders))
    }
}

#[async_trait]
impl Faults for ZkLike {
    fn plan(&self, request: Request, fault: Fault) {
        self.server.wire.plan(request, fault);
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.server.wire.set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        for holder in holders(&self.server.children(key).nodes) {
            self.server.expire_session_of(key, holder.id);
        }
    }

    fn duplicates(&self) -> bool {
        true
    }
}

impl fmt::Debug for ZkLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkLike").finish_non_exhaustive()
    }
}
