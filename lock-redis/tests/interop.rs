//! Clients of other libraries that take locks by `SET NX PX` on the same key.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use polylock_core::{DistributedLock, ErrorKind, LostReason};
use tokio::time::Instant;

use self::Order::{Acquire, Release};
use crate::support::{
    Place, SOON, TTL, assert_error, assert_took, attempt, granted, inspect, loss, ms, release,
    release_lost, renewed, request, take_long, within,
};

/// The release of that family: compare and delete.
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
    return redis.call('del', KEYS[1]) else return 0 end";

/// What a client of another library is told to do.
#[derive(Clone, Copy, Debug)]
enum Order {
    Acquire,
    Release,
}

/// `redis.lock.Lock` of redis-py.
struct Python {
    child: Child,
    answers: BufReader<ChildStdout>,
}

const PROGRAM: &str = r#"
import sys, redis
from redis.exceptions import LockError
lock = redis.Redis(port=int(sys.argv[1])).lock("a", timeout=10, blocking=False, thread_local=False)
for order in sys.stdin:
    if order.strip() == "Acquire":
        print("yes" if lock.acquire() else "no", flush=True)
    else:
        try:
            lock.release()
            print("yes", flush=True)
        except LockError:
            print("no", flush=True)
"#;

impl Python {
    fn start(interpreter: &Path, port: u16) -> Self {
        let mut child = Command::new(interpreter)
            .args(["-c", PROGRAM, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, answers }
    }

    fn order(&mut self, order: Order) -> bool {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{order:?}").expect("it reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        match answer.trim() {
            "yes" => true,
            "no" => false,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A Python with redis-py: that of the system, or one that is made here once.
fn python() -> Option<PathBuf> {
    let has_redis = |python: &Path| {
        let check = Command::new(python)
            .args(["-c", "import redis.lock"])
            .output();
        check.is_ok_and(|output| output.status.success())
    };
    let system = PathBuf::from("python3");
    if has_redis(&system) {
        return Some(system);
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis-py");
    let own = place.join("bin/python");
    let made = |command: &mut Command| {
        let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    if !has_redis(&own) {
        let installed = made(Command::new(&system).args(["-m", "venv"]).arg(&place))
            && made(Command::new(&own).args(["-m", "pip", "install", "-q", "redis"]));
        if !installed {
            return None;
        }
    }
    has_redis(&own).then_some(own)
}

async fn exclude_each_other(place: &Place, mut foreign: impl FnMut(Order) -> bool) {
    let locks = place.client().await;
    // Theirs excludes ours.
    assert!(foreign(Acquire), "a free lock is taken");
    assert_error(&locks, &attempt("a"), ErrorKind::Contended).await;
    assert_eq!(inspect(&locks, "a").await.holders.len(), 1);
    // Their release sends no notification, so our waiter gets the lock within a heartbeat.
    let waiter = place.waiter(&locks, within(request("a"), SOON)).await;
    let began = Instant::now();
    assert!(foreign(Release), "they release what they hold");
    let guard = granted(waiter).await;
    assert_took("noticing their release", began, ..TTL / 5 + ms(1_000));
    // Ours excludes theirs, and their release does not end it.
    assert!(!foreign(Acquire), "two holders");
    assert!(!foreign(Release), "they release what they do not hold");
    renewed(&guard).await;
    release(guard).await;
    place.assert_nothing_left(&[&locks], "a").await;
    // Our release of a lost lock does not end theirs.
    let guard = take_long(&locks, "a").await;
    place.command(&["DEL", "a"]);
    assert!(foreign(Acquire), "a free lock is taken");
    guard.renew().await.expect_err("it is lost");
    assert_eq!(loss(&guard).await, LostReason::Stolen);
    release_lost(guard).await;
    assert!(foreign(Release), "theirs is there");
    // Our waiters queue while they hold the lock: their value is not changed.
    assert!(foreign(Acquire));
    let waiter = place.waiter(&locks, within(request("a"), ms(500))).await;
    waiter.await.expect("no panic").expect_err("it is held");
    assert!(locks.shutdown(SOON).await, "the waiter does not leave");
    assert!(foreign(Release), "they do not find what they stored");
    place.assert_free("a").await;
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn locks_by_raw_commands_and_ours_exclude_each_other() {
    let place = Place::new();
    let by_commands = |order| match order {
        Release => place.number(&["EVAL", RELEASE, "1", "a", "somebody-else"]) == 1,
        Acquire => {
            let set = ["SET", "a", "somebody-else", "NX", "PX", "10000"];
            place.command(&set).text().is_some()
        }
    };
    exclude_each_other(&place, by_commands).await;
}

#[tokio::test]
async fn locks_of_redis_py_and_ours_exclude_each_other() {
    let Some(interpreter) = python() else {
        eprintln!("there is no Python with redis-py, and no way to install it");
        return;
    };
    let place = Place::new();
    let mut python = Python::start(&interpreter, place.server.port());
    exclude_each_other(&place, |order| python.order(order)).await;
}
