//! A harness whose faults never happen fails the cases about them.

use std::sync::Arc;

use async_trait::async_trait;
use polylock_conformance::cases::{self, NewHarness};
use polylock_conformance::{Case, Faults, Harness};
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};

/// A store whose harness takes requests of one kind for another, which no client sends.
#[derive(Debug)]
struct Mistaken {
    memory: Memory,
    about: Option<Request>,
}

#[async_trait]
impl Harness for Mistaken {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Harness::client(&self.memory).await
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }
}

#[async_trait]
impl Faults for Mistaken {
    fn plan(&self, request: Request, fault: Fault) {
        let met = match self.about == Some(request) {
            true => Request::Record,
            false => request,
        };
        Faults::plan(&self.memory, met, fault);
    }

    fn pending(&self) -> Option<usize> {
        Faults::pending(&self.memory)
    }

    fn set_reachable(&self, reachable: Reachable) {
        Faults::set_reachable(&self.memory, reachable);
    }

    async fn end(&self, key: &LockKey) {
        self.memory.end(key).await;
    }

    fn duplicates(&self) -> bool {
        true
    }
}

fn harness(about: Option<Request>) -> NewHarness {
    let memory = Memory::new();
    Box::pin(async move { Arc::new(Mistaken { memory, about }) as Arc<dyn Harness> })
}

fn catch<F: Future<Output = ()>>(request: Request, case: fn(Case) -> F) {
    assert_eq!(cases::caught(harness(None), case), None);
    let message = cases::caught(harness(Some(request)), case).expect("it is not caught");
    assert!(message.contains("did not happen"), "{message}");
}

macro_rules! needs_its_fault {
    ($($group:ident::$case:ident: $request:ident,)*) => {
        $(#[test]
        fn $case() {
            catch(Request::$request, cases::$group::$case);
        })*
    };
}

needs_its_fault! {
    adoption::an_adoption_that_arrives_twice_is_one: Adopt,
    network::a_grant_that_comes_too_late_is_no_guard: Acquire,
    network::a_grant_without_an_answer_leaves_nothing: Acquire,
    network::a_late_grant_counts_from_its_request: Acquire,
    network::a_renewal_that_fails_once_costs_no_lock: Renew,
    network::a_request_that_arrives_twice_is_one: Acquire,
    network::the_wait_bounds_a_server_that_is_silent: Acquire,
    release::a_release_that_arrives_twice_is_one: Release,
    release::a_release_without_an_answer_frees_the_lock: Release,
    release::a_released_lock_is_not_renewed: Renew,
    tickets::an_adoption_without_an_answer_is_an_adoption: Adopt,
}
