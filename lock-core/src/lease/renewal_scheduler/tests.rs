use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::{TICK, renew};
use crate::engine::{BootClock, Engine, LeaseId, OsEntropy, Spawn, Task};
use crate::error::Result;
use crate::key::LockKey;
use crate::lease::{
    Grant, Lease, LeaseControl, LeaseState, Liveness, Released, RenewalRequest, Renewer,
};
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// A lock of a session that gives away its handle.
#[derive(Debug)]
struct Session(mpsc::Sender<LeaseControl>);

#[async_trait]
impl Lease for Session {
    fn liveness(&self) -> Liveness {
        Liveness::Reported
    }

    fn attach(&self, control: LeaseControl) {
        self.0.send(control).expect("the other thread goes on");
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        Ok(None)
    }

    async fn downgrade(&self) -> Result<()> {
        Ok(())
    }

    async fn release(&self) -> Result<Released> {
        Ok(Released::Clean)
    }
}

/// Runs nothing, so that the schedule stays as it was left.
#[derive(Debug)]
struct Nowhere;

impl Spawn for Nowhere {
    fn spawn(&self, task: Task) {
        drop(task);
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        poll();
    }
}

fn engine() -> Engine {
    Engine::with(
        "session",
        Arc::new(BootClock::default()),
        Arc::new(OsEntropy::default()),
        Arc::new(Nowhere),
    )
}

#[test]
fn a_doubt_that_comes_with_the_grant_is_not_planned_away() {
    let request = AcquireRequest::new(LockKey::new("k").unwrap());
    for pause in 0..200 {
        let engine = engine();
        let deadline = engine.now() + Duration::from_secs(60);
        let (attached, controls) = mpsc::channel();
        std::thread::scope(|scope| {
            let schedule = engine.scheduler().schedule.lock();
            let grant = scope.spawn(|| {
                let lease = Arc::new(Session(attached));
                let pending = engine.pending(request.key(), lease, request.ttl());
                pending.granted(&request, Grant::new(engine.now(), None))
            });
            let control = controls.recv().expect("the lease is attached");
            // The grant sleeps before the mutex by now; the doubt is awake, and overtakes it there.
            std::thread::sleep(Duration::from_millis(1));
            let doubt = scope.spawn(move || control.limit(deadline));
            let called = Instant::now();
            while called.elapsed() < Duration::from_micros(pause) {}
            drop(schedule);
            doubt.join().expect("limit does not panic");
            let guard = grant.join().expect("granted does not panic");
            let planned = engine.scheduler().schedule.lock().sleep_from(deadline);
            assert_eq!(planned, Some(Duration::ZERO), "looks too late");
            drop(guard);
        });
    }
}

#[test]
fn the_loop_looks_once_more_after_the_last_lock_and_then_sleeps_for_good() {
    let request = AcquireRequest::new(LockKey::new("k").unwrap());
    let (engine, (attached, _controls)) = (engine(), mpsc::channel());
    let lease = Arc::new(Session(attached));
    let pending = engine.pending(request.key(), lease, request.ttl());
    let granted = pending.granted(&request, Grant::new(engine.now(), None));
    drop(granted.unwrap());
    let pause = || engine.scheduler().schedule.lock().sleep_from(engine.now());
    assert_eq!([pause(), pause(), pause()], [Some(TICK), None, None]);
}

/// Replies when its server does, over a connection that a task reads.
#[derive(Debug)]
struct Connected(Mutex<Option<oneshot::Receiver<LeaseState>>>);

#[async_trait]
impl Renewer for Connected {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let reply = self.0.lock().expect("not poisoned").take();
        let state = reply.expect("one renewal").await;
        let state = state.expect("the connection is read");
        due.iter().map(|_| Ok(state)).collect()
    }
}

/// It was the process that stalled, and not the server.
#[tokio::test]
async fn a_reply_that_waits_in_a_socket_is_not_late() {
    let (mut server, client) = std::os::unix::net::UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    let mut client = UnixStream::from_std(client).unwrap();
    let (replied, reply) = oneshot::channel();
    tokio::spawn(async move {
        client.read_exact(&mut [0]).await.unwrap();
        replied.send(LeaseState::Held).unwrap();
    });
    let limit = Duration::from_millis(20);
    let (key, id) = (LockKey::new("k").unwrap(), LeaseId::from_bytes([1; 16]));
    let due = RenewalRequest::new(key, id, limit * 10);
    let renewer = Connected(Mutex::new(Some(reply)));
    let renewal = tokio::spawn(async move { renew(&renewer, &[due], limit).await });
    for _ in 0..5 {
        yield_now().await;
    }
    server.write_all(b"x").unwrap();
    std::thread::sleep(limit * 2);
    let states = renewal.await.unwrap();
    assert!(matches!(states[..], [Ok(LeaseState::Held)]), "{states:?}");
}
