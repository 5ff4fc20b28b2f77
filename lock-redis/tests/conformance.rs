//! Redis keeps every promise, in every way to run it.

mod support;

mod single {
    use std::sync::Arc;

    use async_trait::async_trait;
    use lock_core::memory::{Fault, Reachable, Request};
    use lock_core::{DistributedLock, LockKey};
    use lock_testkit::harness::{Faults, Harness, Look};
    use lock_testkit::taker::Taker;

    use super::support::Place;

    lock_testkit::conformance!(harness = Place::new().await);

    #[async_trait]
    impl Harness for Place {
        async fn client(&self) -> Arc<dyn DistributedLock> {
            Self::client(self).await
        }

        fn faults(&self) -> Option<&dyn Faults> {
            Some(self)
        }

        fn taker(&self) -> Option<Taker> {
            let url = format!("{}?namespace=", self.server.url());
            Some(Taker::example("redis-taker", url))
        }

        async fn look(&self, key: &LockKey) -> Option<Look> {
            Some(Self::look(self, key))
        }
    }

    #[async_trait]
    impl Faults for Place {
        fn plan(&self, request: Request, fault: Fault) {
            Self::faults(self).plan(request, fault);
        }

        fn set_reachable(&self, reachable: Reachable) {
            Self::faults(self).set_reachable(reachable);
        }

        async fn end(&self, key: &LockKey) {
            self.command(&["DEL", key.as_str()]);
        }

        fn duplicates(&self) -> bool {
            true
        }
    }
}
