//! Programs without `async`, on real servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lock_testkit::servers::{PostgresServer, RedisOptions, RedisServer, ZooKeeperServer};
use polylock::blocking;

/// Threads of two clients compete, and the tokens of each holder exceed those of the last one.
fn compete(url: &str) {
    let is_inside = AtomicBool::new(false);
    let last_token = std::sync::Mutex::new(None);
    let clients = [(); 2].map(|()| blocking::connect(url).expect("the server runs"));
    thread::scope(|scope| {
        for client in clients.iter().flat_map(|client| [client; 3]) {
            scope.spawn(|| {
                for _ in 0..10 {
                    let guard = client.lock("key").expect("the server runs");
                    assert!(!is_inside.swap(true, Ordering::SeqCst), "two holders");
                    let mut last = last_token.lock().expect("no thread panics");
                    assert!(guard.fencing_token() > *last, "a token went back");
                    *last = guard.fencing_token();
                    is_inside.store(false, Ordering::SeqCst);
                }
            });
        }
    });
    for client in &clients {
        assert!(client.shutdown(Duration::from_secs(10)));
    }
    let guard = clients[0].try_lock("key").expect("the server runs");
    let guard = guard.expect("all guards were dropped before the shutdown");
    let other = clients[1].try_lock("key").expect("the server runs");
    assert!(other.is_none());
    guard.release().expect("the lock is held");
}

#[test]
fn threads_compete_for_a_lock_of_redis() {
    let server = RedisServer::start(RedisOptions::default());
    // A busy machine may stall for longer than the default.
    compete(&format!("{}?timeout=10s", server.url()));
}

#[test]
fn threads_compete_for_a_lock_of_postgres() {
    let database = PostgresServer::shared().database();
    compete(&format!("{database}?mode=advisory"));
}

#[test]
fn threads_compete_for_a_lock_of_zookeeper() {
    compete(&ZooKeeperServer::shared().url());
}
