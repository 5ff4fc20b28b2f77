use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::harness::{Faults, Harness, Look};
use lock_testkit::proxy::{Across, Direction, FaultPlan};
use lock_testkit::servers::{PgBouncer, PoolMode, PostgresServer};
use lock_testkit::taker::Taker;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};

use super::requests::of;
use super::{Mode, Site, ms};

/// A site with a proxy before its server.
#[derive(Debug)]
pub(crate) struct Store {
    site: Site,
    /// Where the library goes, past the proxy.
    port: u16,
    faults: FaultPlan,
    /// Stands between the proxy and the server.
    _pooler: Option<PgBouncer>,
}

impl Store {
    pub(crate) fn new(site: Site) -> Self {
        let port = site.server.port();
        Self::behind(site, port, None)
    }

    /// Leases behind PgBouncer in transaction mode.
    pub(crate) fn pooled() -> Self {
        let site = Site::postgres_lease().with("pooler=transaction");
        let server = PostgresServer::shared();
        let pooler = PgBouncer::before_shared(&server, PoolMode::Transaction);
        Self::behind(site, pooler.port(), Some(pooler))
    }

    fn behind(site: Site, port: u16, pooler: Option<PgBouncer>) -> Self {
        let site = site.with_session_timeout(SESSION_TIMEOUT);
        let proxy = site.proxy_to(port);
        let mode = site.mode;
        Self {
            faults: FaultPlan::new(vec![proxy], Across::Any, move |command| of(command, mode)),
            site,
            port,
            _pooler: pooler,
        }
    }
}

/// The time-out of sessions where a hundred of them hold a lock at once, each to be asked within a
/// part of it.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

#[async_trait]
impl Harness for Store {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let port = self.faults.proxies()[0].port();
        Arc::new(self.site.open_at(port).await)
    }

    fn shortest_ttl(&self) -> Duration {
        if self.site.is_session() {
            // What it is set to, and a moment for the server to see it.
            SESSION_TIMEOUT + ms(300)
        } else {
            // A third of it is the time for an answer to a release, on a machine that is very busy.
            Duration::from_secs(3)
        }
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    fn taker(&self) -> Option<Taker> {
        Some(Taker::example("lock-taker", self.site.url_at(self.port)))
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        if self.site.is_session() {
            return None;
        }
        let now = self.site.now();
        let held = format!(
            "SELECT count(*) FROM {} WHERE kind = 1 AND lock_key = {} AND slot < 2147483648
                 AND id IS NOT NULL AND expires_at > {now}",
            self.site.table,
            self.site.bytes(key.as_bytes())
        );
        let held = self.site.number(held).await;
        Some(Look::new(usize::try_from(held).ok()?, 0))
    }
}

#[async_trait]
impl Faults for Store {
    fn plan(&self, request: Request, fault: Fault) {
        self.faults.plan(request, fault);
    }

    fn pending(&self) -> Option<usize> {
        Some(self.faults.pending())
    }

    /// A lock that lives with its connection ends when that is cut, so there the network loses what
    /// is sent.
    fn set_reachable(&self, reachable: Reachable) {
        if !self.site.is_session() {
            return self.faults.set_reachable(reachable);
        }
        let proxy = &self.faults.proxies()[0];
        if reachable == Reachable::Connected {
            proxy.accept();
            proxy.resume(Direction::Both);
        } else {
            proxy.refuse();
            proxy.hold(Direction::Both);
        }
    }

    async fn end(&self, key: &LockKey) {
        match self.site.mode {
            Mode::Advisory | Mode::Row => {
                let session = self.site.holder(key.as_str()).await;
                self.site.kill(session).await;
            }
            Mode::Lease => {
                let end = format!(
                    "UPDATE {} SET id = NULL, sharers = 0, expires_at = 0,
                         version = version + 1 WHERE kind = 1 AND lock_key = {}",
                    self.site.table,
                    self.site.bytes(key.as_bytes())
                );
                self.site.sql(end).await;
            }
        }
    }

    fn duplicates(&self) -> bool {
        false
    }
}
