//! What happens to the file: an error, never a grant.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Place, program};
use lock_testkit::locks::until;
use lock_testkit::polled_once;
use polylock_core::admin::LockEvent;
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LeaseState, LostReason, Mode, Registry};
use polylock_sql::{Sqlite, SqliteBackend, SqliteConfig};
use sqlx::Executor as _;
use tokio::task::JoinSet;

const FILES: [&str; 3] = ["locks.db", "locks.db-wal", "locks.db-shm"];

#[tokio::test]
async fn a_file_that_is_replaced_or_deleted_is_an_error_and_then_another_file() {
    for names in [
        &FILES[..],
        &["locks.db"],
        &["locks.db-wal"],
        &["locks.db-shm"],
    ] {
        for replaced in [true, false] {
            let place = Place::new();
            let locks = place.open().await;
            let guard = locks.lock("job").await.unwrap();
            for name in names {
                fs::rename(place.file(name), place.file(&format!("old-{name}"))).unwrap();
                if replaced {
                    fs::copy(place.file(&format!("old-{name}")), place.file(name)).unwrap();
                }
            }
            let what = format!("{names:?}, replaced: {replaced}");
            let error = locks.try_lock("other").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}");
            assert!(error.message().contains("replaced"), "{what}: {error}");
            let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
            let lost = lost.expect("the loss is told");
            assert_eq!(lost, LostReason::Stolen, "{what}");
        }
    }
}

fn remove(place: &Place) {
    for name in FILES {
        fs::remove_file(place.file(name)).unwrap();
    }
}

#[tokio::test]
async fn the_file_that_took_its_place_is_used_after_that() {
    let place = Place::new();
    let locks = place.open().await;
    let guard = locks.lock("job").await.unwrap();
    let first = guard.fencing_token();
    remove(&place);
    locks.try_lock("job").await.unwrap_err();
    assert!(!guard.is_held());
    let guard = locks.try_lock("job").await.unwrap().unwrap();
    assert!(guard.fencing_token() > first);
    assert!(place.open().await.try_lock("job").await.unwrap().is_none());
}

#[tokio::test]
async fn locks_in_the_new_file_outlive_those_of_the_old_one() {
    let place = Place::new();
    let locks = place.open().await;
    let ttl = Duration::from_secs(2);
    let old = locks.request("old").ttl(ttl).acquire().await.unwrap();
    // The connection for renewals has the old file open as well.
    old.renew().await.unwrap();
    remove(&place);
    locks.try_lock("new").await.unwrap_err();
    let new = locks.request("new").ttl(ttl).acquire().await.unwrap();
    let expiring = new.expiring(Duration::from_millis(200));
    assert!(
        tokio::time::timeout(ttl * 2, expiring).await.is_err(),
        "it is not renewed"
    );
    assert!(new.is_held() && !old.is_held());
}

/// The two clients stand for two processes.
#[tokio::test]
async fn another_holder_of_a_replaced_file_learns_it_at_its_next_renewal() {
    let place = Place::new();
    let (first, second) = (place.open().await, place.open().await);
    let ttl = Duration::from_secs(600);
    let old = first.request("job").ttl(ttl).acquire().await.unwrap();
    // The connection for renewals has the old file open as well.
    old.renew().await.unwrap();
    let other = second.lock("other").await.unwrap();
    remove(&place);
    second.try_lock("job").await.unwrap_err();
    assert!(!other.is_held(), "this process has noticed");
    let new = second.try_lock("job").await.unwrap().unwrap();
    assert!(old.is_held(), "the other process has not");
    let error = old.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(old.lost().reason(), Some(LostReason::Stolen));
    assert!(new.is_held());
}

#[tokio::test]
async fn a_grant_that_is_read_after_its_file_was_replaced_is_checked_at_once() {
    let place = Place::new();
    let locks = place.open().await;
    let slow_to_read = locks.request("job").ttl(Duration::from_secs(600)).acquire();
    let mut slow_to_read = std::pin::pin!(slow_to_read);
    let sent = polled_once(slow_to_read.as_mut()).await;
    assert!(sent.is_pending(), "its reply has been read");
    let (admin, key) = (locks.admin().unwrap(), LockKey::new("job").unwrap());
    until("it is granted", async || {
        admin.inspect(&key).await.unwrap().is_some()
    })
    .await;
    remove(&place);
    locks.try_lock("other").await.unwrap_err();
    let guard = slow_to_read.await.unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
    let lost = lost.expect("the loss is signaled long before a renewal");
    assert_eq!(lost, LostReason::Stolen);
}

/// SQLite keeps the log and its locks beside the name of the file.
#[tokio::test]
async fn a_file_with_a_hard_link_is_refused() {
    let place = Place::new();
    let locks = place.open().await;
    let guard = locks.lock("job").await.unwrap();
    let link = place.file("elsewhere/locks.db");
    fs::create_dir(link.parent().unwrap()).unwrap();
    fs::hard_link(place.database(), &link).unwrap();
    for name in [&link, &place.database()] {
        let error = Sqlite::open(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.message().contains("hard link"), "{error}");
    }
    assert!(guard.is_held());
    fs::remove_file(&link).unwrap();
    // No client opens the name that is left where a client was killed while it made the file.
    let draft = place.file(&format!("locks.db.{}", "0a".repeat(16)));
    fs::hard_link(place.database(), draft).unwrap();
    assert!(place.open().await.try_lock("job").await.unwrap().is_none());
}

#[tokio::test]
async fn a_new_file_is_its_owners_alone() {
    let place = Place::new();
    let locks = place.open().await;
    let _guard = locks.lock("job").await.unwrap();
    for name in FILES {
        let mode = fs::metadata(place.file(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_directory_is_created_on_request() {
    let place = Place::new();
    let path = place.file("new/dir/locks.db");
    let error = Sqlite::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let says = "does not exist: make it, or write create-dir=on";
    assert!(error.message().ends_with(says), "{error}");
    let registry = Registry::new().with(SqliteBackend::default()).unwrap();
    let url = format!("sqlite:{}?create-dir=on", path.display());
    let locks = registry.connect(&url).await.unwrap();
    locks.lock("job").await.unwrap().release().await.unwrap();
    let mode = fs::metadata(path.parent().unwrap()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// The system says `No such file or directory` of both.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_directory_that_takes_no_files_is_not_said_to_be_missing() {
    let error = Sqlite::open("/proc/locks.db").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let says = "the database file \"/proc/locks.db\" cannot be opened";
    assert!(error.message().ends_with(says), "{error}");
}

#[tokio::test]
async fn what_is_no_database_is_left_as_it_is() {
    let place = Place::new();
    let text = "not a database ".repeat(1000);
    fs::write(place.database(), &text).unwrap();
    let error = Sqlite::open(place.database()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.message().contains("something else than a database"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(place.database()).unwrap(), text);
}

#[tokio::test]
async fn a_directory_in_the_place_of_the_file_is_said_to_be_one() {
    let place = Place::new();
    let error = Sqlite::open(place.directory.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    let says = "is a directory: name a file in it";
    assert!(error.message().ends_with(says), "{error}");
}

#[tokio::test]
async fn a_table_of_another_application_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    place.run("CREATE TABLE mine (key TEXT, value TEXT)").await;
    let config = SqliteConfig::new(place.database())
        .with_table("mine")
        .unwrap();
    let error = Sqlite::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
}

/// The next request makes the table again.
#[tokio::test]
async fn a_table_that_is_dropped_while_it_is_used_is_unavailable() {
    let place = Place::new();
    let (locks, other) = (place.open().await, place.open().await);
    let held = locks.lock("job").await.unwrap();
    let mut waiting = pin!(other.lock_within("job", Duration::from_secs(20)));
    assert!(polled_once(waiting.as_mut()).await.is_pending());
    place.run("DROP TABLE polylock_locks").await;
    // Before the waiter leaves its queue, which makes the table again.
    let error = locks.try_lock("other").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = waiting.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.is_outcome_unknown(), "{error}");
    let says = "table polylock_locks of the database file";
    assert!(error.message().contains(says), "{error}");
    let guard = other.try_lock("job").await.unwrap();
    assert!(guard.is_some(), "it is in no table");
    let error = held.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

#[tokio::test]
async fn a_table_of_a_later_version_is_refused_even_when_it_is_open() {
    let place = Place::new();
    let locks = place.open().await;
    let later = "UPDATE polylock_locks SET token = 2 WHERE key = x''";
    place.run(later).await;
    for error in [
        locks.try_lock("job").await.map(drop).unwrap_err(),
        Sqlite::open(place.database()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.message().contains("layout 2"), "{error}");
    }
}

#[tokio::test]
async fn rows_that_make_no_sense_are_an_error_and_not_a_free_lock() {
    for damage in [
        "id = x'00'",
        "boot_id = x''",
        "expires_boot = -1",
        "permits = -1",
    ] {
        let place = Place::new();
        let locks = place.open().await;
        let _guard = locks.lock("job").await.unwrap();
        let damage = format!("UPDATE polylock_locks SET {damage} WHERE key <> x''");
        place.run(&damage).await;
        let error = locks.try_lock("job").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{damage}: {error}");
    }
}

const DAMAGE_BAD: &str = "UPDATE polylock_locks SET permits = -1 WHERE key = CAST('bad' AS BLOB)";

/// Requests for several keys share a transaction, and new keys pass the purge over all rows.
#[tokio::test]
async fn a_row_that_makes_no_sense_costs_its_own_lock_only() {
    let place = Place::new();
    let locks = Arc::new(place.open().await);
    let short = |name: &str| {
        let request = AcquireRequest::new(LockKey::new(name).unwrap());
        request.with_ttl(Duration::from_secs(2))
    };
    let good = locks.acquire(&short("good")).await.unwrap();
    let bad = locks.acquire(&short("bad")).await.unwrap();
    place.run(DAMAGE_BAD).await;
    // Both are renewed together.
    let lost = tokio::time::timeout(Duration::from_secs(20), bad.lost()).await;
    lost.expect("the loss is signaled");
    let mut writer = place.sql().await;
    for round in 0..4 {
        // Requests that come meanwhile are served together.
        writer.execute("BEGIN IMMEDIATE").await.unwrap();
        let mut requests = JoinSet::new();
        for name in [
            format!("new {round} a"),
            "bad".to_owned(),
            format!("new {round} b"),
        ] {
            let locks = Arc::clone(&locks);
            requests.spawn(async move { (locks.try_lock(&name).await.map(|_| ()), name) });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        writer.execute("COMMIT").await.unwrap();
        while let Some(done) = requests.join_next().await {
            let (locked, name) = done.unwrap();
            let kind = locked.err().map(|error| error.kind());
            let expected = (name == "bad").then_some(ErrorKind::Foreign);
            assert_eq!(kind, expected, "{name}");
        }
    }
    for n in 0..16 {
        let name = format!("purge {n}");
        locks.lock(&name).await.unwrap().release().await.unwrap();
    }
    assert_eq!(good.release().await.unwrap(), Released::Clean);
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_listed_beside_other_locks() {
    let place = Place::new();
    let locks = place.open().await;
    let _held = [
        locks.lock("bad").await.unwrap(),
        locks.lock("good").await.unwrap(),
    ];
    place.run(DAMAGE_BAD).await;
    let admin = locks.admin().unwrap();
    let listed = admin.list("").await.unwrap().into_iter();
    let listed = listed.map(|info| (info.key.to_string(), info.holders[0].token.is_some()));
    let expected = [("bad".to_owned(), false), ("good".to_owned(), true)];
    assert_eq!(listed.collect::<Vec<_>>(), expected);
    let mut events = admin.watch("").await.unwrap();
    let _new = locks.lock("new").await.unwrap();
    match events.recv().await.unwrap() {
        LockEvent::Acquired(info) => assert_eq!(info.key.as_str(), "new"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lock_with_thousands_of_holders_can_be_broken() {
    let place = Place::new();
    let locks = place.open().await;
    let key = LockKey::new("job").unwrap();
    let request = AcquireRequest::new(key.clone()).with_mode(Mode::Shared);
    let _guard = locks.acquire(&request).await.unwrap();
    // As many more holders as rows that are written in three statements.
    place
        .run(
            "WITH RECURSIVE n(slot) AS (VALUES(2) UNION ALL SELECT slot + 1 FROM n WHERE slot < 2600)
             INSERT INTO polylock_locks
             SELECT key, n.slot, last_token, randomblob(16), token, permits, boot_id, expires_boot,
               label, acquired_at, changed_at, broken_id, broken_reason
             FROM polylock_locks, n WHERE key = CAST('job' AS BLOB) AND polylock_locks.slot = 1",
        )
        .await;
    let admin = locks.admin().unwrap();
    let broken = admin.break_lock(&key, "a test").await.unwrap();
    assert_eq!(broken.unwrap().holders.len(), 2_600);
    assert!(admin.inspect(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn a_database_that_others_keep_locked_is_unavailable_and_not_contended() {
    let place = Place::new();
    let config = SqliteConfig::new(place.database());
    let config = config
        .with_busy_timeout(Duration::from_millis(500))
        .unwrap();
    let locks = Sqlite::connect(config).await.unwrap();
    let held = locks.lock("held").await.unwrap();
    let mut writer = place.sql().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    let error = locks.try_lock("job").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.is_outcome_unknown(), "{error}");
    let error = locks
        .lock_within("job", Duration::from_millis(20))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // Reading does not wait for a writer.
    let (admin, key) = (locks.admin().unwrap(), LockKey::new("held").unwrap());
    assert!(admin.inspect(&key).await.unwrap().is_some());
    writer.execute("COMMIT").await.unwrap();
    locks.lock("job").await.unwrap().release().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Clean);
}

#[tokio::test]
async fn a_database_that_others_keep_locked_for_a_while_is_waited_for() {
    let place = Place::new();
    let locks = place.open().await;
    let ticket = locks.lock("kept").await.unwrap().into_ticket().unwrap();
    let admin = locks.admin().unwrap();
    let mut writer = place.sql().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        writer.execute("COMMIT").await.unwrap();
    };
    // The timeout of an automatic renewal would be shorter.
    let ttl = Duration::from_secs(2);
    let renewal = admin.renew_lease(ticket.key(), ticket.lease_id(), ttl);
    let (guard, renewed, ()) = tokio::join!(locks.try_lock("job"), renewal, release);
    assert!(guard.unwrap().is_some());
    assert_eq!(renewed.unwrap(), LeaseState::Held);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_what_was_granted_before_is_stored() {
    let place = Place::new();
    drop(place.open().await);
    // 256 KiB for each file; the signal that comes with the limit is not to kill the process.
    let limit = r#"trap "" XFSZ; ulimit -f 512; exec "$@""#;
    let mut fill = Command::new("sh");
    fill.args(["-c", limit, "sh"])
        .arg(program("sqlite-filler"))
        .arg(place.database());
    let (held, error) = filled(&mut fill);
    assert!(error.starts_with("Unavailable sqlite:"), "{error}");
    assert!(held > 50, "{held}: {error}");
    let stored = "SELECT count(*) FROM polylock_locks WHERE id IS NOT NULL AND key <> x''";
    assert_eq!(place.number(stored).await, held);
    assert!(place.open().await.try_lock("job").await.unwrap().is_some());
}

/// SQLite gives them the mode of the database, and the group of the user who makes them.
#[tokio::test]
async fn a_file_beside_the_database_that_this_user_cannot_use_is_named() {
    for name in ["locks.db-wal", "locks.db-shm"] {
        for (mode, says) in [(0o000, "cannot be opened"), (0o444, "is read-only")] {
            let place = Place::new();
            let locks = place.open().await;
            let _guard = locks.lock("job").await.unwrap();
            for name in FILES {
                set_mode(&place.file(name), 0o666);
            }
            set_mode(&place.file(name), mode);
            set_mode(place.directory.path(), 0o777);
            let (held, error) = filled(&mut filler(&place));
            assert_eq!(held, 0);
            assert!(error.starts_with("Unavailable"), "{name} {mode:o}: {error}");
            assert!(error.contains(says), "{name} {mode:o}: {error}");
            assert!(error.contains(name), "{name} {mode:o}: {error}");
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_or_read_is_an_error() {
    // The mode of the file, the mode of its directory, and the error.
    for (file, directory, says) in [
        (0o444, 0o777, "read-only"),
        (0o444, 0o555, "read-only"),
        (0o000, 0o777, "cannot be opened"),
        (0o666, 0o000, "cannot be opened"),
    ] {
        let place = Place::new();
        drop(place.open().await);
        let closed = async || !place.file("locks.db-wal").exists();
        until("the database is closed", closed).await;
        set_mode(&place.database(), file);
        set_mode(place.directory.path(), directory);
        let (held, error) = filled(&mut filler(&place));
        set_mode(place.directory.path(), 0o755);
        assert_eq!(held, 0);
        assert!(
            error.starts_with("Unavailable"),
            "{file:o} in {directory:o}: {error}"
        );
        assert!(error.contains(says), "{file:o} in {directory:o}: {error}");
    }
}

/// The filler as a user whom file modes restrict.
fn filler(place: &Place) -> Command {
    let mut fill = Command::new(program("sqlite-filler"));
    fill.arg(place.database());
    if rustix::process::geteuid().is_root() {
        // The user `nobody`.
        fill.uid(65534).gid(65534);
    }
    fill
}

/// The output of the filler: how many locks it held at the end, and the error that ended it.
fn filled(command: &mut Command) -> (i64, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let (held, error) = said.trim().split_once(' ').unwrap_or_else(|| {
        panic!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    });
    (held.parse().unwrap(), error.to_owned())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
