//! Sessions by a connector of the application.

use lock_testkit::servers::ZooKeeperServer;
use polylock_core::ErrorKind;
use polylock_zk::NodeAccess;
use zookeeper_client::{Acls, Client, CreateMode, Permission};

use crate::support::{assert_error, assert_refused, attempt, open, release, take, without_root};

#[tokio::test]
async fn locks_have_the_identities_of_the_connector() {
    let (root, config) = without_root();
    let connector = || {
        Client::connector()
            .with_auth("digest", b"me:pw")
            .with_auth("digest", b"team:s3cret")
    };
    // An operator has made the root, for both identities.
    let address = ZooKeeperServer::shared().address();
    let operator = connector().connect(&address);
    let operator = operator.await.expect("a session");
    let directory = CreateMode::Persistent.with_acls(Acls::creator_all());
    operator.mkdir(&root, &directory).await.expect("it is new");

    let own = config.clone().with_connector(connector());
    let own = own.expect("it is fit for locks");
    assert!(!format!("{own:?}").contains("s3cret"));
    let mine = open(own).await;
    let guard = take(&mine, "a").await;
    let (acls, _) = operator
        .get_acl(&format!("{root}/a"))
        .await
        .expect("the directory of the key");
    let ids: Vec<_> = acls.iter().map(|acl| acl.scheme()).collect();
    assert_eq!(ids, ["digest", "digest"], "{acls:?}");
    assert!(acls.iter().all(|acl| acl.permission() == Permission::ALL));

    // Another connector, and none.
    let other = Client::connector().with_auth("digest", b"me:typo");
    let other = config.clone().with_connector(other);
    for stranger in [config.clone(), other.expect("it is fit for locks")] {
        assert_refused(stranger, ErrorKind::Denied, "").await;
    }

    // A login is added to what the connector has.
    let both = config.with_connector(Client::connector().with_auth("digest", b"x:y"));
    let both = both.and_then(|config| config.with_digest_login("team", "s3cret"));
    let colleague = open(both.expect("a user")).await;
    assert_error(&colleague, &attempt("a"), ErrorKind::Contended).await;
    release(guard).await;
    release(take(&colleague, "a").await).await;
}

#[tokio::test]
async fn the_session_timeout_is_that_of_the_configuration() {
    let (root, config) = without_root();
    let hour = std::time::Duration::from_secs(3_600);
    let connector = Client::connector()
        .with_auth("digest", b"me:pw")
        .with_session_timeout(hour)
        .with_connection_timeout(hour)
        .with_readonly(true);
    let config = config.with_connector(connector);
    let config = config.expect("it is fit for locks").with_strict_checks();
    // A strict start refuses a session timeout that differs from the requested one.
    let locks = open(config).await;
    let guard = take(&locks, "a").await;
    assert!(guard.is_held(), "{root}");
    release(guard).await;
}

#[tokio::test]
async fn a_connector_without_an_identity_needs_access_for_everybody() {
    let (_, config) = without_root();
    let config = config.with_connector(Client::connector());
    let config = config.expect("it is fit for locks");
    // Nodes would have no owner.
    assert_refused(config.clone(), ErrorKind::Denied, "access=everybody").await;
    let locks = open(config.with_access(NodeAccess::Everybody)).await;
    release(take(&locks, "a").await).await;
}

#[tokio::test]
async fn connectors_of_other_sessions_are_refused() {
    let (_, config) = without_root();
    let address = ZooKeeperServer::shared().address();
    let client = Client::connect(&address);
    let session = client.await.expect("a session").into_session();
    let resumed = Client::connector().with_session(session);
    let detached = Client::connector().with_detached();
    for (connector, says) in [(resumed, "resumes a session"), (detached, "detaches")] {
        let error = config.clone().with_connector(connector);
        let error = error.expect_err("it is not fit for locks");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.message().contains(says), "{error}");
    }
}
