//! Sessions with a real server.

use std::time::Duration;

use lock_testkit::proxy::Proxy;
use lock_testkit::servers::ZooKeeperServer;
use polylock_core::{AcquireRequest, DistributedLock as _, LockKey, LostReason, Wait};
use tokio::time::{Instant, timeout};

use crate::{ZooKeeper, ZooKeeperConfig};

const SOON: Duration = Duration::from_secs(10);

/// Where negotiated timeouts are unknown, the session of a new connection may be shorter than its
/// locks assume: they are lost, and there is another session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_connects_again_unheard_is_replaced() {
    let server = ZooKeeperServer::shared();
    let addresses = server.addresses();
    let port = addresses[0].rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::zookeeper(port);
    let config = ZooKeeperConfig::new([("127.0.0.1", proxy.port())]);
    let config = config
        .with_root("/a_session_that_connects_again_unheard")
        .unwrap();
    let locks = ZooKeeper::connect(config.with_session_timeout(SOON).unwrap())
        .await
        .unwrap();
    let request = AcquireRequest::new(LockKey::new("a").unwrap()).with_wait(Wait::AtMost(SOON * 2));
    let session = async || {
        let sessions = &locks.client.sessions;
        sessions.get(Instant::now() + SOON).await.unwrap()
    };
    // A session with known timeouts goes on.
    let guard = locks.acquire(&request).await.unwrap();
    let first = session().await;
    let responses = first.negotiated.responses();
    proxy.cut();
    let deadline = Instant::now() + SOON;
    while first.negotiated.responses() == responses {
        assert!(Instant::now() < deadline, "it does not connect again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(guard.renew().await.is_ok() && guard.is_held());
    assert!(
        !first.is_over(),
        "a session with known timeouts is replaced"
    );

    first.negotiated.ignore_log();
    proxy.cut();
    let lost = timeout(SOON, guard.lost().into_future()).await;
    let lost = lost.expect("the locks of a session of unknown length are kept");
    assert_eq!(lost, LostReason::SessionEnded);
    let next = session().await;
    assert_ne!(next.client.session_id(), first.client.session_id());
    // The session closes with the last that knows it.
    let token = guard.fencing_token();
    drop((guard, first));
    let again = locks.acquire(&request).await.unwrap();
    assert!(again.fencing_token() > token);
    again.release().await.unwrap();
}
