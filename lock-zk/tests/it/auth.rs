//! Access control of locks.

#[cfg(feature = "sasl")]
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use polylock_core::admin::Record;
use polylock_core::{DistributedLock, ErrorKind, FencingToken};
#[cfg(feature = "sasl")]
use polylock_core::{LostReason, PasswordFile};
use polylock_zk::{NodeAccess, ZooKeeperConfig};

use crate::support::{
    SOON, admin, assert_error, assert_refused, key, open, release, request, seen, take,
    without_root,
};
#[cfg(feature = "sasl")]
use crate::support::{config, lasting};

/// A configuration with the login of a user.
fn of_user(config: &ZooKeeperConfig, name: &str) -> ZooKeeperConfig {
    let own = config.clone().with_digest_login(name, "pw");
    own.expect("a user")
}

#[tokio::test]
async fn another_identity_is_denied_the_locks() {
    let (_, config) = without_root();
    let mine = open(of_user(&config, "me")).await;
    let guard = take(&mine, "a").await;

    let wrong = config.clone().with_digest_login("me", "typo");
    for stranger in [config.clone(), wrong.expect("a user")] {
        // Without the right to read the root, a client could not keep a lock.
        let error = assert_refused(stranger, ErrorKind::Denied, "access control list").await;
        assert!(!error.is_retryable(), "{error}");
    }

    let colleague = open(of_user(&config, "me")).await;
    assert!(guard.is_held());
    release(guard).await;
    let _next = take(&colleague, "a").await;
}

#[tokio::test]
async fn readers_see_locks_and_take_none() {
    let (_, config) = without_root();
    let own = of_user(&config, "me").with_access(NodeAccess::CreatorAndReaders);
    let mine = open(own).await;
    let _guard = take(&mine, "a").await;

    let reader = open(config).await;
    let admin = admin(&reader);
    assert!(seen(&reader, "a").await.is_some());
    assert_eq!(admin.list("").await.expect("they may be listed").len(), 1);
    for name in ["a", "b"] {
        let error = assert_error(&reader, &request(name), ErrorKind::Denied).await;
        assert!(!error.is_retryable(), "{error}");
        assert!(error.message().contains("access control list"), "{error}");
    }
    let error = admin.break_lock(&key("a"), "test").await;
    assert_eq!(error.expect_err("denied").kind(), ErrorKind::Denied);

    let (a, record) = (key("a"), Record::new(FencingToken::new(7), "done"));
    let written = crate::support::admin(&mine).write_record(&a, &record, SOON);
    assert!(written.await.expect("it is stored"));
    let found = admin.record(&a).await.expect("it may be read");
    assert_eq!(found.as_ref(), Some(&record));
    for name in ["a", "b"] {
        let error = admin.write_record(&key(name), &record, SOON).await;
        assert_eq!(error.expect_err("denied").kind(), ErrorKind::Denied);
    }
}

#[tokio::test]
async fn identities_that_share_a_root_have_records_of_their_own() {
    let (_, config) = without_root();
    let _everybody = open(config.clone().with_access(NodeAccess::Everybody)).await;
    let record = Record::new(FencingToken::new(7), "done");
    let mut clients = Vec::new();
    for name in ["me", "you"] {
        let own = of_user(&config, name).with_access(NodeAccess::Creator);
        let client = open(own).await;
        let written = admin(&client).write_record(&key(name), &record, SOON).await;
        assert!(written.expect("it is stored"), "{name}");
        clients.push(client);
    }
    let (yours, of_me) = (admin(&clients[1]), key("me"));
    let error = yours.write_record(&of_me, &record, SOON).await;
    let error = error.expect_err("denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn sasl_users_have_locks_of_their_own() {
    let users = sasl_users(&[("me", "pw"), ("you", "word")]);
    let server = ZooKeeperServer::start(users);
    // A session that does not expire while a machine starts many servers.
    let config = || lasting(config(&[server.port()], "/locks"), SOON * 2);
    let mine = config().with_sasl_login("me", "pw").expect("a user");
    let mine = open(mine).await;
    let _guard = take(&mine, "a").await;

    let yours = config().with_sasl_login("you", "word").expect("a user");
    assert_refused(yours, ErrorKind::Denied, "").await;

    let wrong = config().with_sasl_login("me", "typo").expect("a user");
    let error = assert_refused(wrong, ErrorKind::Denied, "").await;
    assert_eq!(error.backend(), Some("zookeeper"));
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn a_server_that_insists_on_sasl_and_one_without_users_say_so() {
    let strict = sasl_users(&[("me", "pw")])
        .with_property("zookeeper.enforce.auth.enabled", "true")
        .with_property("zookeeper.enforce.auth.schemes", "sasl");
    let (strict, plain) = (strict, ZooKeeperOptions::new());
    let [strict, plain] = [strict, plain].map(ZooKeeperServer::start);
    let config = |server: &ZooKeeperServer| config(&[server.port()], "/locks");
    let login = |config: ZooKeeperConfig| config.with_sasl_login("me", "pw").expect("a user");
    let brief = login(config(&plain)).with_connect_timeout(std::time::Duration::from_secs(3));
    for (refused, says) in [
        (config(&strict), "asks for a login"),
        (brief.expect("in range"), ""),
    ] {
        assert_refused(refused, ErrorKind::Denied, says).await;
    }
    open(login(config(&strict))).await;
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn a_new_session_logs_in_with_the_password_that_the_file_has_by_then() {
    let server = ZooKeeperServer::start(sasl_users(&[("me", "first")]));
    let file = server.dir().join("password");
    std::fs::write(&file, "first\n").expect("the directory takes files");
    let credentials = PasswordFile::new(&file).with_username("me");
    let config = lasting(config(&[server.port()], "/locks"), SOON * 2);
    let locks = open(config.with_sasl_credentials(credentials)).await;
    let guard = take(&locks, "a").await;

    // The server knows the new password after a restart only, and the session keeps the old one.
    let users = server.dir().join("jaas.conf");
    let text = std::fs::read_to_string(&users).expect("there are users");
    std::fs::write(&users, text.replace("first", "second")).expect("they may be written");
    server.restart();
    let lost = tokio::time::timeout(SOON * 4, guard.lost()).await;
    let reason = lost.expect("the loss is signaled");
    assert!(
        matches!(reason, LostReason::SessionEnded | LostReason::Unreachable),
        "{reason}"
    );

    // An attempt that began with the first password may still be on its way.
    std::fs::remove_file(&file).expect("it is there");
    loop {
        let error = locks.acquire(&request("b")).await.expect_err("no login");
        if error.message().contains("password file") {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            break;
        }
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    std::fs::write(&file, "second\n").expect("the directory takes files");
    let _guard = take(&locks, "b").await;
}

/// A server with users of SASL's DIGEST-MD5. Clients may stay without one, too.
#[cfg(feature = "sasl")]
fn sasl_users(users: &[(&str, &str)]) -> ZooKeeperOptions {
    let user = |(name, password): &(&str, &str)| format!("\n  user_{name}=\"{password}\"");
    let users: String = users.iter().map(user).collect();
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    ZooKeeperOptions::new()
        .with_config("authProvider.1", provider)
        .with_property("java.security.auth.login.config", "{dir}/jaas.conf")
        .with_file(
            "jaas.conf",
            &format!("Server {{\n  {module} required{users};\n}};\n"),
        )
}
