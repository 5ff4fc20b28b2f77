//! What the recorder writes, and what can be read of it.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_conformance::history::{
    Access, Checker, FencedRegister, HistoryEvent, Recorder, What,
};
use polylock_core::memory::Memory;
use polylock_core::{AcquireRequest, FencingToken, LockKey, Renewal, Wait};

/// A file in memory.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> Vec<u8> {
        self.0.lock().expect("no writer panics").clone()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn key() -> LockKey {
    LockKey::new("a \"key\"\u{1f512}").expect("it is a key")
}

fn request() -> AcquireRequest {
    AcquireRequest::new(key()).with_ttl(Duration::from_secs(1))
}

fn kinds(events: &[HistoryEvent]) -> Vec<String> {
    let json = events
        .iter()
        .map(|event| serde_json::to_value(event).expect("it is JSON"));
    json.map(|event| event["op"].as_str().expect("it has a kind").to_owned())
        .collect()
}

#[tokio::test]
async fn a_life_is_written_line_by_line() {
    let (locks, page) = (Memory::new(), Page::default());
    let recorder = Recorder::new().with_output(page.clone());
    let held = recorder.acquire(&locks, &request()).await.unwrap();
    assert!(held.look());
    let refused = recorder
        .acquire(&locks.client(), &request().with_wait(Wait::Never))
        .await;
    assert!(refused.is_err());
    held.release().await.unwrap();
    let events = recorder.events();
    let expected = [
        "requested",
        "granted",
        "held",
        "requested",
        "refused",
        "releasing",
        "released",
    ];
    assert_eq!(kinds(&events), expected);
    let text = String::from_utf8(page.text()).unwrap();
    let read = |line| serde_json::from_str::<HistoryEvent>(line).unwrap();
    assert_eq!(text.lines().map(read).collect::<Vec<_>>(), events);
    assert_ne!(events[0].attempt, events[3].attempt);
    Checker::new().check(&events).assert_clean();
}

#[tokio::test]
async fn what_is_dropped_is_written_too() {
    let (locks, recorder) = (Memory::new(), Recorder::new());
    drop(recorder.acquire(&locks, &request()).await.unwrap());
    let waiting = request().with_wait(Wait::Forever);
    let held = recorder.acquire(&locks, &waiting).await.unwrap();
    let given_up = recorder.acquire(&locks, &waiting);
    tokio::time::timeout(Duration::from_millis(10), given_up)
        .await
        .unwrap_err();
    let events = recorder.events();
    let expected = [
        "requested",
        "granted",
        "releasing",
        "requested",
        "granted",
        "requested",
        "cancelled",
    ];
    assert_eq!(kinds(&events), expected);
    drop(held);
}

#[tokio::test]
async fn deadlines_are_never_later_than_they_are() {
    let (locks, recorder) = (Memory::new(), Recorder::new());
    let before = recorder.now();
    let lease = request().with_renewal(Renewal::Manual);
    let held = recorder.acquire(&locks, &lease).await.unwrap();
    let events = recorder.events();
    let What::Requested { access, exact } = events[0].what else {
        panic!("{events:?}")
    };
    assert_eq!((access, exact), (Access::Exclusive, true));
    let What::Granted { token, until } = events[1].what else {
        panic!("{events:?}")
    };
    assert_eq!(token, held.fencing_token().map(u64::from));
    let until = until.unwrap();
    let ttl = 1_000_000_000;
    assert!(until <= recorder.now().as_nanos() + ttl * 9 / 10);
    assert!(until >= before.as_nanos() + ttl * 8 / 10);
}

#[test]
fn the_register_refuses_and_notes_what_is_stale() {
    let recorder = Recorder::new();
    let register = FencedRegister::new(recorder.clone(), key());
    register.write(FencingToken::new(5)).unwrap();
    register.write(FencingToken::new(5)).unwrap();
    let stale = register.write(FencingToken::new(4)).unwrap_err();
    let (token, newest) = (FencingToken::new(4), FencingToken::new(5));
    assert_eq!((stale.token, stale.newest), (token, Some(newest)));
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!((summary.writes, summary.stale_writes), (2, 1));
}

#[test]
fn attempts_of_two_recorders_differ() {
    let (one, other) = (Recorder::new(), Recorder::new());
    drop((one.attempt(&request()), other.attempt(&request())));
    assert_ne!(one.events()[0].attempt, other.events()[0].attempt);
}
