//! Work that begins on a runtime which ends, in real time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::engine::{Engine, LeaseId};
use lock_core::prelude::*;
use lock_core::{
    AcquireRequest, FencingToken, Grant, Lease, LeaseControl, LeaseState, Liveness, RenewalRequest,
    Renewer, Result,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// A lease that takes its time to be released.
#[derive(Debug)]
struct Slow {
    id: LeaseId,
    began: mpsc::UnboundedSender<()>,
    released: mpsc::UnboundedSender<()>,
}

#[async_trait]
impl Lease for Slow {
    fn liveness(&self) -> Liveness {
        let (id, renewer) = (self.id, Arc::new(Willing) as Arc<dyn Renewer>);
        Liveness::Renewed { id, renewer }
    }

    fn attach(&self, _: LeaseControl) {}

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        Ok(None)
    }

    async fn downgrade(&self) -> Result<()> {
        Ok(())
    }

    async fn release(&self) -> Result<Released> {
        self.began.send(()).expect("the test listens");
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.released.send(()).expect("the test listens");
        Ok(Released::Clean)
    }
}

#[derive(Debug)]
struct Willing;

#[async_trait]
impl Renewer for Willing {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        due.iter().map(|_| Ok(LeaseState::Held)).collect()
    }
}

#[test]
fn a_release_whose_runtime_ends_goes_on() {
    let engine = Engine::of_this_process("slow");
    let request = AcquireRequest::new(LockKey::new("k").unwrap());
    let (began, mut beginnings) = mpsc::unbounded_channel();
    let (released, mut releases) = mpsc::unbounded_channel();
    let lease = Arc::new(Slow {
        id: engine.lease_id(),
        began,
        released,
    });
    let pending = engine.pending(request.key(), lease, request.ttl());
    let grant = Grant::new(engine.now(), None);
    let guard = pending.granted(&request, grant).unwrap();
    let brief = Runtime::new().unwrap();
    brief.spawn(guard.release());
    beginnings.blocking_recv().unwrap();
    drop(brief);
    // Its timer has gone with the runtime, so that it begins again on the engine's.
    beginnings.blocking_recv().unwrap();
    assert_eq!(releases.blocking_recv(), Some(()));
    assert!(beginnings.try_recv().is_err(), "it is done then");
}
