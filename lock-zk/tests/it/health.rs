//! What is found of ensembles that are not fit for locks, and of those that are.

use lock_core::{ErrorKind, HealthCheck, Registry, Result, Status};
use lock_testkit::servers::{
    SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer,
};
use lock_zk::ZooKeeperBackend;
use zookeeper_client::{Acl, Acls, Client, CreateMode, Permission};

use crate::support::{Tree, until};

async fn try_check(url: &str) -> Result<Vec<HealthCheck>> {
    let registry = Registry::new().with(ZooKeeperBackend::default());
    registry.expect("one backend").check_health(url).await
}

async fn check_health(url: &str) -> Vec<HealthCheck> {
    try_check(url).await.expect("it can be looked at")
}

/// The faults, each with its check.
async fn faults(url: &str) -> Vec<String> {
    let mut found = check_health(url).await;
    found.retain(HealthCheck::is_fault);
    let text = |health: &HealthCheck| format!("{} {health}", health.id);
    found.iter().map(text).collect()
}

/// Asserts that these are the faults, in this order.
fn assert_are(found: &[String], expected: &[&str]) {
    let is = |(one, start): (&String, &&str)| one.starts_with(start);
    let fits = found.len() == expected.len() && found.iter().zip(expected).all(is);
    assert!(fits, "{expected:?}: {found:#?}");
}

const ALONE: &str = "ensemble the ensemble is one server";

/// A root of the test at these servers, as a user with an identity, with a session of 10 s.
fn url(addresses: &[String], root: &str) -> String {
    let hosts = addresses.join(",");
    format!("zk://me:s3cret@{hosts}{root}?session-timeout=10s")
}

fn ensemble() -> SharedZooKeeper {
    ZooKeeperEnsemble::shared()
}

fn root(name: &str) -> String {
    format!("/examine-{name}-{}", std::process::id())
}

#[tokio::test]
async fn an_ensemble_that_is_fit_has_no_fault_and_keeps_nothing() {
    let (ensemble, root) = (ensemble(), root("fit"));
    let url = url(&ensemble.addresses(), &root);
    for says in ["was missing, and is made", "is there"] {
        let found = check_health(&url).await;
        for health in &found {
            assert_eq!(health.status, Status::Ok, "{health:?}");
        }
        let checks: Vec<_> = found.iter().map(|health| health.id).collect();
        let expected = [
            "version",
            "ensemble",
            "session-timeout",
            "access",
            "quorum",
            "root",
            "rights",
            "clock",
        ];
        assert_eq!(checks, expected);
        let of_root = found.iter().find(|health| health.id == "root");
        assert!(of_root.is_some_and(|health| health.summary.contains(says)));
    }
    let client = Client::connector().with_auth("digest", b"me:s3cret");
    let client = client.connect(&ensemble.addresses().join(",")).await;
    let left = client.expect("it connects").list_children(&root).await;
    assert_eq!(left.expect("it may be read"), [""; 0]);
}

#[tokio::test]
async fn each_fault_is_found_by_its_name() {
    let digest = "zookeeper.DigestAuthenticationProvider.superDigest";
    // super:pw
    let options =
        ZooKeeperOptions::new().with_property(digest, "super:0bX78nEegDzJM3ju0iLBEJdWzjg=");
    let server = ZooKeeperServer::start(options);
    let address = server.address();
    let at = |login: &str, params: &str| format!("zk://{login}{address}/locks?{params}");
    let good = at("me:s3cret@", "session-timeout=10s");
    assert_are(&faults(&good).await, &[ALONE]);
    until("its session is closed", async || {
        server.mntr("zk_ephemerals_count") == Some(0)
            && server.mntr("zk_num_alive_connections") == Some(1)
    })
    .await;

    let long = faults(&at("me:s3cret@", "session-timeout=30s")).await;
    let says = "session-timeout the session timeout is 10s, not the requested 30s";
    assert_are(&long, &[ALONE, says]);
    let short = faults(&at("me:s3cret@", "session-timeout=2s")).await;
    assert_are(
        &short,
        &[ALONE, "session-timeout the session timeout is 2s: a pause"],
    );
    let open = at("", "session-timeout=10s").replace("/locks", "/open");
    let open_by_default = faults(&open).await;
    assert_are(&open_by_default, &[ALONE, "access everyone may change"]);
    let said = faults(&format!("{open}&access=everybody")).await;
    assert_are(&said, &[ALONE]);
    let strict = faults(&format!("{good}&strict=on")).await;
    assert_are(&strict, &[ALONE]);

    // Somebody else's root, or a password that is mistyped.
    let other = faults(&at("me:typo@", "session-timeout=10s")).await;
    assert_are(
        &other,
        &[ALONE, "rights this user may not create nodes in /locks"],
    );
    assert!(!other.concat().contains("typo"));
    let nobody = open.replace("/open", "/nobody") + "&access=creator";
    let nobody = faults(&nobody).await;
    assert_are(&nobody, &[ALONE, "root the root /nobody is missing, and"]);

    let admin = Client::connector().with_auth("digest", b"super:pw");
    let admin = admin.connect(&address).await.expect("it connects");
    let only = [Acl::new_const(Permission::ALL, "digest", "super:x")];
    let closed = admin.set_acl("/zookeeper/config", &only, None).await;
    closed.expect("the superuser may");
    let found = check_health(&good).await;
    let unknown = found.iter().filter(|f| f.status == Status::NotChecked);
    assert_eq!(unknown.map(|f| f.id).collect::<Vec<_>>(), ["ensemble"]);
    assert!(!found.iter().any(HealthCheck::is_fault), "{found:?}");
}

#[tokio::test]
async fn rights_that_a_root_does_not_give_are_named() {
    let ensemble = ensemble();
    let addresses = ensemble.addresses();
    let tree = Tree::open(&addresses.join(","), &root("parent")).await;
    let (read, create, delete) = (Permission::READ, Permission::CREATE, Permission::DELETE);
    let cases = [
        ("all", read | create | delete, None),
        (
            "no-create",
            read | delete,
            Some("rights this user may not create nodes"),
        ),
        (
            "no-read",
            create | delete,
            Some("rights this user may not read /examine-no-read"),
        ),
        (
            "no-delete",
            read | create,
            Some("rights this user may not delete nodes"),
        ),
    ];
    for (name, permission, says) in cases {
        let root = root(name);
        let acl = [Acl::new(permission, zookeeper_client::AuthId::anyone())];
        let options = CreateMode::Persistent.with_acls(Acls::new(&acl));
        let made = tree.client().create(&root, &[], &options).await;
        made.expect("it is made");
        let found = faults(&url(&addresses, &root)).await;
        match says {
            Some(says) => assert_are(&found, &[says]),
            None => assert_are(&found, &[]),
        }
        if name == "no-read" {
            let below = faults(&url(&addresses, &format!("{root}/below"))).await;
            assert_are(&below, &[]);
        }
        if name == "no-create" {
            let below = faults(&url(&addresses, &format!("{root}/below"))).await;
            assert_are(&below, &["root the root /examine-no-create"]);
        }
    }
}

#[tokio::test]
async fn servers_that_do_not_serve_are_named() {
    let mut addresses = ensemble().addresses();
    addresses.push("127.0.0.1:1".to_owned());
    let found = faults(&url(&addresses, &root("gone"))).await;
    let says =
        "quorum 1 of 4 servers that the URL names do not serve: 127.0.0.1:1 cannot be reached";
    assert_are(&found, &[says]);

    let error = try_check("zk://127.0.0.1:1/locks").await;
    let error = error.expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.backend(), Some("zookeeper"));
}

#[tokio::test]
async fn an_even_number_of_servers_is_found() {
    let two = ZooKeeperEnsemble::start(2, &ZooKeeperOptions::new());
    let found = faults(&url(&two.addresses(), "/locks")).await;
    assert_are(&found, &["ensemble the ensemble has 2 servers that vote"]);
}
