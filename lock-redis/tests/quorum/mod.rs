//! Locks on several independent masters: what every backend promises, and what nodes do to them.

mod config;
mod cost;
mod handover;
mod health;
mod nodes;
mod notifications;
mod outages;
mod partition;
mod records;
mod rejoin;
mod renewals;
mod support;

mod conformance_suite {
    use std::sync::Arc;

    use async_trait::async_trait;
    use lock_testkit::harness::{Faults, Harness, Look};
    use lock_testkit::taker::Taker;
    use polylock_core::memory::{Fault, Reachable, Request};
    use polylock_core::{DistributedLock, LockKey};

    use super::nodes::Nodes;

    lock_testkit::conformance!(
        harness = Nodes::behind_proxies(3),
        skip = [Adoption, Fair, Permits]
    );

    #[async_trait]
    impl Harness for Nodes {
        async fn client(&self) -> Arc<dyn DistributedLock> {
            Self::client(self).await
        }

        fn faults(&self) -> Option<&dyn Faults> {
            Some(self)
        }

        fn taker(&self) -> Option<Taker> {
            Some(Taker::example("redis-taker", self.url()))
        }

        async fn look(&self, key: &LockKey) -> Option<Look> {
            Some(Look::new(self.most_holders(key.as_str()).await, 0))
        }
    }

    #[async_trait]
    impl Faults for Nodes {
        fn plan(&self, request: Request, fault: Fault) {
            self.faults().plan(request, fault);
        }

        fn set_reachable(&self, reachable: Reachable) {
            self.faults().set_reachable(reachable);
        }

        async fn end(&self, key: &LockKey) {
            Self::end(self, key.as_str()).await;
        }

        fn duplicates(&self) -> bool {
            true
        }
    }
}
