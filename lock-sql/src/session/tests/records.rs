//! Records of holders that are written late, and what a release does about them.

use std::time::Duration;

use lock_testkit::locks::until;
use polylock_core::admin::LockAdmin as _;
use polylock_core::engine::LeaseId;
use polylock_core::{LockKey, Mode, Released, Wait};
use tokio::time::Instant;

use super::{SqlSessions, open, recorded, request, run, session_with, urls};
use crate::database::tests::{databases, until_blocked};
use crate::session::admin::break_lock;
use crate::session::args::Args;

/// Another transaction locks the record, so that it cannot be written before the release, nor cleared by it.
#[tokio::test]
async fn a_release_is_in_time_although_the_record_of_its_holder_is_late() {
    let key = LockKey::new("k").unwrap();
    for database in databases() {
        let url = format!("{database}?mode=row&timeout=20s");
        let (before, there) = (open(&url).await, open(&url).await);
        let other = async |text: &str| run(&there, text, Args::new()).await;
        // The record is there from now on.
        recorded(&before).await.release().await.unwrap();
        // A release of this one may take two thirds of a second.
        let brief = request("k", Wait::AtMost(Duration::from_secs(20)));
        let brief = brief.with_ttl(Duration::from_secs(2));
        until("a busy machine is fast enough", async || {
            let here = open(&url).await;
            other("BEGIN; SELECT id FROM polylock_locks WHERE kind = 3 FOR UPDATE").await;
            let guard = here.acquire(&brief).await.unwrap();
            until_blocked(&database).await;
            let released = guard.release().await;
            other("COMMIT").await;
            until("the session of the late record ends", async || {
                there.inspect(&key).await.unwrap().is_none()
            })
            .await;
            matches!(released, Ok(Released::Clean))
        })
        .await;
    }
}

#[tokio::test]
async fn a_record_that_could_not_be_written_is_written_later() {
    let key = LockKey::new("k").unwrap();
    for database in databases() {
        let url = format!("{database}?mode=advisory");
        let (here, there) = (open(&url).await, open(&url).await);
        // Its session is there from now on.
        recorded(&here).await.release().await.unwrap();
        until("it is free", async || {
            there.inspect(&key).await.unwrap().is_none()
        })
        .await;
        run(
            &there,
            "ALTER TABLE polylock_locks RENAME TO elsewhere",
            Args::new(),
        )
        .await;
        let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
        // Its record fails meanwhile.
        tokio::time::sleep(Duration::from_millis(500)).await;
        run(
            &there,
            "ALTER TABLE elsewhere RENAME TO polylock_locks",
            Args::new(),
        )
        .await;
        // An administrative call of this process would ask for the record.
        let recorded = "SELECT COUNT(*) FROM polylock_locks WHERE kind = 4 AND id IS NOT NULL";
        until("the holder is recorded", async || {
            run(&there, recorded, Args::new()).await.int(0) == Some(1)
        })
        .await;
        assert_eq!(guard.release().await.unwrap(), Released::Clean);
        until("no record stays", async || {
            there.inspect(&key).await.unwrap().is_none()
        })
        .await;
    }
}

/// Another transaction locks the record, for which the release waits up to a second.
#[tokio::test]
async fn a_release_that_was_dropped_goes_on_and_is_waited_for() {
    for database in databases() {
        let url = format!("{database}?mode=row&timeout=20s");
        let (before, there) = (open(&url).await, open(&url).await);
        let other = async |text: &str| run(&there, text, Args::new()).await;
        recorded(&before).await.release().await.unwrap();
        let wait = request("k", Wait::AtMost(Duration::from_secs(20)));
        until("a busy machine is fast enough", async || {
            let here = open(&url).await;
            other("BEGIN; SELECT id FROM polylock_locks WHERE kind = 3 FOR UPDATE").await;
            let guard = here.acquire(&wait).await.unwrap();
            until_blocked(&database).await;
            let dropped = tokio::time::timeout(Duration::from_millis(50), guard.release()).await;
            let is_done = here.shutdown(Duration::from_millis(100)).await;
            other("COMMIT").await;
            assert!(here.shutdown(Duration::from_secs(20)).await);
            dropped.is_err() && !is_done
        })
        .await;
    }
}

/// The session does not run between the break and the release, and so has not noticed its end.
#[tokio::test]
async fn a_release_after_a_break_finds_the_lock_lost() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let (here, there) = (open(&url).await, open(&url).await);
        let guard = recorded(&here).await;
        let key = guard.key().clone();
        let operator = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(break_lock(&there.context, &key, "why"))
        });
        assert!(operator.join().unwrap().unwrap().is_some(), "{url}");
        let released = guard.release().await;
        assert_eq!(released.unwrap(), Released::AlreadyLost, "{url}");
    }
}

/// Records a holder that has released the lock, as a request does that was on its way for long.
async fn record_late(here: &SqlSessions, is_shared: bool, token: u64) {
    let id = LeaseId::from_bytes([9; 16]);
    let mut late = session_with(id, Some(Instant::now()), here).await;
    let held = late.held.get_mut(&id).unwrap();
    (held.is_shared, held.token) = (is_shared, token);
    late.record_holders(None);
    let recording = late.held[&id].recording.clone().unwrap();
    recording.ended().await;
    late.held.clear();
}

#[tokio::test]
async fn the_late_record_of_a_reader_hides_no_later_holder() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let (here, there) = (open(&url).await, open(&url).await);
        let guard = recorded(&here).await;
        record_late(&there, true, 1).await;
        let info = there.inspect(guard.key()).await.unwrap();
        let info = info.unwrap_or_else(|| panic!("it is held: {url}"));
        assert_eq!(info.mode, Mode::Exclusive, "{url}");
        assert!(
            there
                .break_lock(guard.key(), "why")
                .await
                .unwrap()
                .is_some(),
            "{url}"
        );
    }
}

#[tokio::test]
async fn the_late_record_of_an_exclusive_holder_hides_no_later_readers() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        // Advisory locks of MySQL and MariaDB are exclusive.
        if url.starts_with("mysql") && url.contains("advisory") {
            continue;
        }
        let (here, there) = (open(&url).await, open(&url).await);
        let shared = request("k", Wait::Never).with_mode(Mode::Shared);
        let first = here.acquire(&shared).await.unwrap();
        let second = there.acquire(&shared).await.unwrap();
        let holders = async || {
            let info = there.inspect(first.key()).await.unwrap();
            info.map_or(0, |info| info.holders.len())
        };
        until("both are recorded", async || holders().await == 2).await;
        record_late(&there, false, 1).await;
        assert_eq!(holders().await, 2, "{url}");
        // In whichever order readers are recorded.
        record_late(&there, true, 1).await;
        // MySQL shows the late one until its session has ended.
        until("both are listed", async || holders().await == 2).await;
        for guard in [first, second] {
            assert_eq!(guard.release().await.unwrap(), Released::Clean, "{url}");
        }
    }
}
