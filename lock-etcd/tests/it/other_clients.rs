//! Clients of other languages on the same lock: `etcdctl lock`, and Go's `concurrency.Mutex` behind the
//! lock service of etcd.

use std::process::Stdio;

use etcd_client::LockOptions;
use polylock_core::{ErrorKind, Wait};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::{
    Place, SOON, acquire, admin, assert_error, granted, key, ms, release, request,
};

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_and_this_client_stand_in_one_line() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = acquire(&locks, "a").await;
    let mut theirs = Etcdctl::start(&place, "a");
    place.contenders("a", 2).await;
    let ours = place.waiter(&locks, request("a")).await;
    assert!(!theirs.is_granted(ms(300)).await, "two holders");
    release(guard).await;
    assert!(theirs.is_granted(SOON).await, "the line goes on");
    let attempt = request("a").with_wait(Wait::Never);
    assert_error(&locks, &attempt, ErrorKind::Contended).await;
    let info = admin(&locks).inspect(&key("a")).await.expect("it answers");
    let waiters = info.expect("it is held").waiters;
    assert_eq!(waiters.map(|waiters| waiters.len()), Some(1));
    assert!(!ours.is_finished(), "two holders");
    theirs.end().await;
    release(granted(ours).await).await;
}

/// An administrator can break its locks here.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_service_and_this_client_exclude_each_other() {
    let place = Place::new().await;
    let locks = place.client().await;
    let name = format!("{}/a", place.prefix());
    let lock = || {
        let (mut client, name) = (place.tree().client(), name.clone());
        async move {
            let lease = client.lease_grant(60, None).await?.id();
            client
                .lock(name, Some(LockOptions::new().with_lease(lease)))
                .await
        }
    };
    lock().await.expect("it is free");
    let ours = place.waiter(&locks, request("a")).await;
    let again = tokio::spawn(lock());
    place.contenders("a", 3).await;
    let broken = admin(&locks).break_lock(&key("a"), "a test").await;
    let broken = broken.expect("it answers").expect("it was held");
    assert_eq!(broken.holders.len(), 1);
    let guard = granted(ours).await;
    assert!(!again.is_finished(), "two holders");
    release(guard).await;
    let theirs = timeout(SOON, again).await.expect("the line goes on");
    theirs.expect("no panic").expect("it is granted");
}

/// A process that holds a lock until it is ended.
struct Etcdctl {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Etcdctl {
    fn start(place: &Place, name: &str) -> Self {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=127.0.0.1:{}", place.port()))
            .args(["lock", &format!("{}/{name}", place.prefix())])
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("etcdctl is installed");
        let output = child.stdout.take().expect("it has one");
        let lines = BufReader::new(output).lines();
        Self { child, lines }
    }

    /// It prints its key once it has the lock.
    async fn is_granted(&mut self, within: std::time::Duration) -> bool {
        let line = timeout(within, self.lines.next_line()).await;
        line.is_ok_and(|line| line.is_ok_and(|line| line.is_some()))
    }

    /// Ends it as Ctrl+C does, which releases the lock.
    async fn end(mut self) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid
            .and_then(rustix::process::Pid::from_raw)
            .expect("it runs");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        self.child.wait().await.expect("it ends");
    }
}
