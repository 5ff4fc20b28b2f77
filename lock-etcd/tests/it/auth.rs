//! Logins, rights and certificates.

use std::fs;

use etcd_client::{Client, ConnectOptions, Permission};
use lock_testkit::proxy::{Direction, Proxy};
use polylock_core::memory::Reachable;
use polylock_core::{DistributedLock, ErrorKind};
use polylock_etcd::Etcd;

use crate::support::{
    EtcdOptions, EtcdServer, Place, SOON, TTL, acquire, admin, assert_error, client, config,
    is_creation, is_release, long, ms, open, release, request, until, waiting,
};

/// A server with a user who may use the locks of one prefix.
async fn secured(options: EtcdOptions) -> EtcdServer {
    let server = EtcdServer::start(options);
    let mut root = client(&server).await;
    root.role_add("locks").await.expect("it is added");
    let permission = Permission::read_write("locks/").with_prefix();
    let granted = root.role_grant_permission("locks", permission).await;
    granted.expect("it is granted");
    for (user, role) in [("root", "root"), ("orders", "locks")] {
        let is_said = |error: &etcd_client::Error, text| error.to_string().contains(text);
        let mut added = root.user_add(user, "s3cret", None).await;
        // On a busy machine the hash of a password may take longer than a request has, and counts later.
        while added
            .as_ref()
            .is_err_and(|error| is_said(error, "timed out"))
        {
            added = root.user_add(user, "s3cret", None).await;
        }
        if let Err(error) = added {
            assert!(is_said(&error, "already exists"), "{error}");
        }
        let granted = root.user_grant_role(user, role).await;
        granted.expect("it is granted");
    }
    root.auth_enable().await.expect("it is enabled");
    server
}

/// A user with a role for the prefix has everything; others are denied, and told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_for_the_prefix_is_enough() {
    let server = secured(EtcdOptions::default()).await;
    let ours = config(&[server.port()], "locks");
    let locks = open(ours.clone().with_login("orders", "s3cret")).await;
    let guard = acquire(&locks, "a").await;
    let info = admin(&locks).list("").await;
    assert_eq!(info.expect("it may list").len(), 1);
    release(guard).await;

    for config in [ours.clone().with_login("orders", "guessed"), ours] {
        let error = match Etcd::connect(config).await {
            Err(error) => error,
            Ok(locks) => assert_error(&locks, &request("a"), ErrorKind::Denied).await,
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error:?}").contains("guessed"), "{error:?}");
    }
    let elsewhere = config(&[server.port()], "other").with_login("orders", "s3cret");
    assert_error(&*open(elsewhere).await, &request("a"), ErrorKind::Denied).await;
}

/// The token of a login ends, and is got anew; a password that has changed is read again.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_renewed_with_the_password_that_the_file_has_by_then() {
    let server = secured(EtcdOptions::default().with_config("auth-token-ttl", "1")).await;
    let dir = server.dir().join("password");
    fs::write(&dir, "s3cret\n").expect("it is written");
    let url = format!(
        "etcd://orders@127.0.0.1:{}/locks?password-file={}",
        server.port(),
        dir.display()
    );
    let url = polylock_core::LockUrl::parse(&url).expect("it is a URL");
    let config = polylock_etcd::EtcdConfig::from_url(&url).expect("it is a configuration");
    let locks = open(config).await;
    let lasting = request("a").with_ttl(TTL * 3);
    let guard = locks.acquire(&lasting).await.expect("it is free");
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());

    let mut root = administrator(&server).await;
    let changed = root.user_change_password("orders", "n3wer").await;
    changed.expect("it is changed");
    fs::write(&dir, "n3wer\n").expect("it is written");
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
    release(guard).await;
    release(acquire(&locks, "b").await).await;
}

async fn administrator(server: &EtcdServer) -> Client {
    let options = ConnectOptions::new().with_user("root", "s3cret");
    let url = format!("http://{}", server.address());
    let connected = Client::connect([url], Some(options)).await;
    connected.expect("it connects")
}

/// While authentication is disabled, a client goes on without its login, and then with it again.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_kept_while_authentication_is_disabled() {
    let server = secured(EtcdOptions::default()).await;
    let ours = config(&[server.port()], "locks").with_login("orders", "s3cret");
    let locks = open(ours.clone()).await;
    let guard = locks.acquire(&long("a")).await.expect("it is free");

    let disabled = administrator(&server).await.auth_disable().await;
    disabled.expect("it is disabled");
    until("the lock is renewed without a login", async || {
        guard.renew().await.is_ok()
    })
    .await;
    release(acquire(&locks, "b").await).await;
    release(acquire(&*open(ours).await, "b").await).await;

    let enabled = client(&server).await.auth_enable().await;
    enabled.expect("it is enabled");
    until("the lock is renewed with the login", async || {
        guard.renew().await.is_ok()
    })
    .await;
    release(acquire(&locks, "b").await).await;
    release(guard).await;
}

/// Takes the rights from the user.
async fn revoke(server: &EtcdServer) {
    let mut root = administrator(server).await;
    let revoked = root.user_revoke_role("orders", "locks").await;
    revoked.expect("it is revoked");
}

/// The first creation may be executed later. Its retry is refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_whose_retry_is_refused_has_an_unknown_outcome() {
    let server = secured(EtcdOptions::default()).await;
    let place = Place::of(&server).await;
    let behind = config(&[place.counter().port()], "locks").with_login("orders", "s3cret");
    // The retries last until the user has lost its rights.
    let locks = open(behind.with_timeout(SOON * 2).expect("it is in range")).await;
    place.counter().hold(is_creation);
    let waiter = waiting(&locks, long("a"));
    place.held().await;
    place.counter().set_reachable(Reachable::Cut);
    revoke(&server).await;
    place.counter().set_reachable(Reachable::Connected);
    let error = waiter.await.expect("no panic").expect_err("it is denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
}

/// The first deletion may have been executed. The retry is refused, and the release reports an unknown outcome.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_retry_is_refused_has_an_unknown_outcome() {
    let server = secured(EtcdOptions::default()).await;
    let place = Place::of(&server).await;
    let behind = config(&[place.counter().port()], "locks").with_login("orders", "s3cret");
    let locks = open(behind).await;
    // The retries end while its lease lasts.
    let guard = locks.acquire(&long("a")).await.expect("it is free");
    place.counter().hold(is_release);
    let released = tokio::spawn(guard.release());
    place.held().await;
    revoke(&server).await;
    // The reply to the first deletion is lost.
    place.counter().set_reachable(Reachable::Cut);
    place.counter().set_reachable(Reachable::Connected);
    let error = released.await.expect("no panic").expect_err("it is denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(locks.shutdown(SOON).await, "the retries do not end");
}

/// Otherwise every request would begin a login of its own and abort it.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_may_take_longer_than_a_request_has() {
    let server = secured(EtcdOptions::default().with_config("bcrypt-cost", "13")).await;
    let config = config(&[server.port()], "locks").with_login("orders", "s3cret");
    let limit = ms(200);
    let impatient = config.with_timeout(limit).expect("it is in range");
    let began = tokio::time::Instant::now();
    drop(open(impatient).await);
    let elapsed = began.elapsed();
    assert!(elapsed > limit, "the login took no more than {elapsed:?}");
}

/// TLS with a client certificate, on the servers and clients that have it alone.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_verifies_both_sides() {
    use lock_testkit::servers::{ServerCertificate, TestCertificates};

    let files = TestCertificates::new(ServerCertificate::Valid);
    let path = |path: std::path::PathBuf| path.display().to_string();
    let options = EtcdOptions::default()
        .with_config("cert-file", &path(files.server_certificate()))
        .with_config("key-file", &path(files.server_key()))
        .with_config("trusted-ca-file", &path(files.ca()))
        .with_config("client-cert-auth", "true")
        .with_tls();
    let server = EtcdServer::start(options);
    let plain = config(&[server.port()], "locks").with_connect_timeout(ms(3_000));
    let plain = plain.expect("it is in range");
    let trusting = plain.clone().with_tls_ca(files.ca());
    let known = trusting
        .clone()
        .with_tls_identity(files.client_certificate(), files.client_key());
    let locks = open(known).await;
    release(acquire(&locks, "a").await).await;
    for config in [plain.clone(), plain.with_tls(), trusting] {
        let refused = Etcd::connect(config.clone()).await;
        refused.expect_err(&format!("{config:?} is let in"));
    }
}

/// Held locks are renewed and released.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_grants_no_lock() {
    let server =
        EtcdServer::start(EtcdOptions::default().with_config("quota-backend-bytes", "262144"));
    let place = Place::of(&server).await;
    // A server whose database is full is slow, and one that has not answered in time may have acted.
    let patient = place.config().with_timeout(SOON);
    let locks = open(patient.expect("it is in range")).await;
    let (left, kept) = (acquire(&locks, "left").await, acquire(&locks, "kept").await);

    let mut client = place.tree().client();
    while client.put("filler", vec![0; 32_768], None).await.is_ok() {}
    // Its neighbor cannot move to another lease, and is kept by the one that it has.
    left.abandon();
    tokio::time::sleep(TTL * 2).await;
    release(kept).await;
    let error = assert_error(&locks, &request("a"), ErrorKind::Unavailable).await;
    assert!(!error.is_outcome_unknown(), "{error}");
    // A retry that is in flight at the end leaves no doubt.
    let proxy = Proxy::of_bytes(server.port());
    let behind = config(&[proxy.port()], place.prefix()).with_timeout(ms(1_000));
    let locks = open(behind.expect("it is in range")).await;
    proxy.set_latency(Direction::Replies, ms(300));
    for _ in 0..4 {
        let refused = locks.acquire(&request("a")).await;
        let error = refused.expect_err("nothing is written");
        assert!(!error.is_outcome_unknown(), "{error}");
    }
}
