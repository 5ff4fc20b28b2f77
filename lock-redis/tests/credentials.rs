//! Passwords that change while locks are held.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::locks::renewed_after;
use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock_core::{
    Credentials, DistributedLock, DistributedLockExt as _, Error, ErrorKind, Login, Registry,
};
use polylock_redis::{Redis, RedisBackend, RedisConfig};
use tempfile::TempDir;
use tokio::time::Instant;

/// Long enough for logins that are not optimized, of many tests at a time.
const TTL: Duration = Duration::from_secs(10);

/// A server with one user of locks, whose password is in a file.
struct Scene {
    server: RedisServer,
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let server = RedisServer::start(RedisOptions::new());
        let folder = tempfile::tempdir().expect("a directory");
        let scene = Self { server, folder };
        let user = ["ACL", "SETUSER", "locks", "on", "~*", "&*", "+@all"];
        scene.server.command(&user);
        scene.rotate("first");
        scene
    }

    fn file(&self) -> String {
        self.folder.path().join("password").display().to_string()
    }

    fn write(&self, password: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{password}\n")).expect("it is written");
        fs::rename(new, self.file()).expect("it takes its place");
    }

    /// The server and the file have a new password, and the clients lose their connections.
    fn rotate(&self, password: &str) {
        let set = format!(">{password}");
        self.server
            .command(&["ACL", "SETUSER", "locks", "resetpass", &set]);
        self.write(password);
        self.disconnect();
    }

    fn disconnect(&self) {
        self.server.command(&["CLIENT", "KILL", "USER", "locks"]);
    }

    async fn open(&self) -> Arc<dyn DistributedLock> {
        let backends = Registry::new().with(RedisBackend::default());
        let (port, file) = (self.server.port(), self.file());
        let url = format!("redis://locks@127.0.0.1:{port}?password-file={file}");
        let connected = backends.expect("one backend").connect(&url).await;
        connected.expect("the password is right")
    }
}

/// The first error of attempts that is neither a broken connection nor a success, whose release may
/// have to wait for a connection.
async fn refused(locks: &Arc<dyn DistributedLock>, scene: &Scene) -> Error {
    for _ in 0..50 {
        match locks.try_lock("probe").await {
            Err(error) if !error.is_outcome_unknown() => return error,
            _ => scene.disconnect(),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no attempt was refused");
}

#[tokio::test]
async fn a_password_is_rotated_under_held_locks() {
    let scene = Scene::new();
    let locks = scene.open().await;
    let request = locks.request("held").ttl(TTL);
    let guard = request.acquire().await.expect("it is free");

    for password in ["second", "third"] {
        scene.rotate(password);
        renewed_after(&guard, Instant::now(), TTL).await;
        let other = locks.lock("other").await.expect("so do acquisitions");
        other.release().await.expect("it is held");
    }
    guard.release().await.expect("it is held");
}

#[tokio::test]
async fn a_file_that_is_missing_or_wrong_is_an_error_until_it_is_right() {
    let scene = Scene::new();
    let locks = scene.open().await;

    fs::remove_file(scene.file()).expect("it was there");
    let error = refused(&locks, &scene).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        source.is_some_and(|source| source.contains(&scene.file())),
        "{error:?}"
    );

    scene.write("wr0ng");
    let error = refused(&locks, &scene).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");

    scene.write("first");
    for _ in 0..50 {
        if locks.try_lock("again").await.is_ok_and(|it| it.is_some()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the right password is not used");
}

/// Counts how often it was asked.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicUsize>);

#[async_trait]
impl Credentials for Counted {
    async fn login(&self) -> polylock_core::Result<Login> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Login::new().with_username("locks").with_password("first"))
    }
}

#[tokio::test]
async fn a_provider_is_asked_at_each_connection_and_at_no_request() {
    let scene = Scene::new();
    let counted = Counted::default();
    let config = RedisConfig::new("127.0.0.1", scene.server.port());
    let locks = Redis::connect(config.with_credentials(counted.clone())).await;
    let locks = locks.expect("the password is right");
    for _ in 0..10 {
        drop(locks.lock("key").await.expect("it is free"));
    }
    let before = counted.0.load(Ordering::SeqCst);
    assert!((1..=4).contains(&before), "asked {before} times");
    scene.disconnect();
    let mut attempts = 0;
    while counted.0.load(Ordering::SeqCst) == before {
        assert!(attempts < 50, "no new connection asked");
        attempts += 1;
        drop(locks.try_lock("key").await);
    }
}
