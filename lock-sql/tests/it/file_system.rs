//! A file system that does not answer.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lock_testkit::locks::{key, ms};
use polylock_core::memory::Memory;
use polylock_core::{AcquireRequest, DistributedLock as _, ErrorKind};
use polylock_sql::{Sqlite, SqliteConfig};
use tempfile::TempDir;

/// A mount whose requests have no reply until it is dropped.
#[derive(Debug)]
struct Hanging {
    directory: TempDir,
    /// The process that should reply.
    mounter: Child,
}

impl Hanging {
    /// `None` where it cannot be mounted.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let script = "exec 3<>/dev/fuse && \
                      mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" && \
                      echo mounted && exec sleep 60";
        let mut mounter = Command::new("sh")
            .args(["-c", script])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let said = mounter.stdout.take().expect("it is a pipe");
        let said = BufReader::new(said).lines().next();
        if said.is_none() {
            mounter.wait().expect("it has ended");
            return None;
        }
        Some(Self { directory, mounter })
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // What hangs gets an error.
        drop(self.mounter.kill());
        drop(self.mounter.wait());
        let unmount = Command::new("umount")
            .arg("-l")
            .arg(self.directory.path())
            .status();
        drop(unmount);
    }
}

/// A thread that waits for a file renews no lease of any backend.
#[tokio::test]
async fn a_file_system_that_hangs_stops_no_renewal_and_no_timeout() {
    let Some(hanging) = Hanging::mount() else {
        eprintln!("no file system of this kind can be mounted here");
        return;
    };
    let short = AcquireRequest::new(key("a")).with_ttl(ms(2_000));
    let held = Memory::new().acquire(&short).await.expect("it is free");
    let config = SqliteConfig::new(hanging.directory.path().join("locks.db"));
    let config = config.with_busy_timeout(ms(6_000)).expect("in range");
    let connecting = Sqlite::connect(config);
    let connected = tokio::time::timeout(Duration::from_secs(20), connecting).await;
    let is_held = held.is_held();
    drop(hanging);
    let connected = connected.expect("the timeout ends it");
    let error = connected.expect_err("there is no file");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.is_outcome_unknown(), "{error}");
    assert!(is_held, "lost: {:?}", held.lost().reason());
}
