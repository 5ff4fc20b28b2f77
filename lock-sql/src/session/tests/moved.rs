//! Sessions behind a pooler that gives their statements to sessions of others.

use super::*;
use crate::database::tests::pooler::{SHARE, pooled, set};

/// The server has one session for all clients of the pooler.
const ONE_SESSION: &str = "SET default_pool_size = 1";

/// Moves a session as a pooler does that nobody has declared, to a session of the server that has the lock for another
/// client.
async fn move_to_holder(actor: &mut Actor, here: &SqlSessions, key: &LockKey) {
    let mut holder = here.open_another().await;
    let taken = Sql::new("SELECT pg_try_advisory_lock({3})::int::bigint");
    let taken = holder.run(&taken, here.context.args(key).values()).await;
    assert_eq!(taken.unwrap().int(0), Some(1), "it is free");
    actor.connection = Some(holder);
}

/// A session that was moved so while it has the lock of the id, its client, and another one.
async fn moved_holder() -> (Actor, LeaseId, [SqlSessions; 2]) {
    let url = format!("{}?mode=advisory", PostgresServer::shared().database());
    let (here, other) = (open(&url).await, open(&url).await);
    let id = LeaseId::from_bytes([1; 16]);
    let mut actor = session_with(id, None, &here).await;
    let key = actor.held[&id].key.clone();
    move_to_holder(&mut actor, &here, &key).await;
    (actor, id, [here, other])
}

#[tokio::test]
async fn a_request_that_a_pooler_has_moved_frees_no_lock_of_others() {
    for wait in [None, Some(Duration::from_secs(1))] {
        let url = format!("{}?mode=advisory", PostgresServer::shared().database());
        let (here, other) = (open(&url).await, open(&url).await);
        let mut actor = actor::connect(&here.pool).await.unwrap();
        let guard = here.acquire(&request("held", Wait::Never)).await.unwrap();
        let session = here.pool.sessions().pop().unwrap();
        for (id, control) in session.end() {
            actor.handle.attach(id, &control);
        }
        move_to_holder(&mut actor, &here, request("k", Wait::Never).key()).await;
        let until = wait.map(|wait| Instant::now() + wait);
        let refused = take(&mut actor, &here, Wait::Never, until).await;
        let failure = refused.err().expect("it is not granted");
        assert!(
            matches!(failure.cause, SqlCause::Config(_)),
            "{}",
            failure.cause
        );
        let error = other.acquire(&request("k", Wait::Never)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "two holders: {error}");
        assert!(!guard.is_held(), "its holder is to learn that at once");
    }
}

#[tokio::test]
async fn a_release_that_a_pooler_has_moved_frees_no_lock_of_others() {
    let (mut actor, id, [_here, other]) = moved_holder().await;
    let key = actor.held[&id].key.clone();
    // As after a wait that was cancelled.
    assert!(!actor.undo(&key, false).await, "nothing is undone there");
    assert!(actor.is_over, "the session goes on");
    let failure = actor.release(id).await.unwrap_err();
    assert!(failure.outcome_unknown, "{}", failure.cause);
    let error = other.acquire(&request("k", Wait::Never)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "two holders: {error}");
}

#[tokio::test]
async fn a_downgrade_that_a_pooler_has_moved_changes_no_lock_of_others() {
    let (mut actor, id, [_here, other]) = moved_holder().await;
    let failure = actor.downgrade(id).await.unwrap_err();
    assert!(failure.ends_session(), "{}", failure.cause);
    assert!(actor.is_over, "the session goes on");
    let reader = request("k", Wait::Never).with_mode(Mode::Shared);
    let error = other.acquire(&reader).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "two holders: {error}");
}

/// The pooler gives the session that one client has set up, and that has its lock, to the next one.
#[tokio::test]
async fn clients_that_have_set_up_one_session_of_a_pooler_exclude_each_other() {
    for wait in [Wait::Never, Wait::AtMost(Duration::from_secs(1))] {
        let (pooler, url) = pooled(&PostgresServer::shared().database());
        let url = format!("{url}?mode=advisory");
        set(&pooler, ONE_SESSION).await;
        let (here, there) = (open(&url).await, open(&url).await);
        set(&pooler, SHARE).await;
        let guard = here.acquire(&request("k", wait)).await.unwrap();
        let error = there.acquire(&request("k", wait)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.message().contains("mode=lease"), "{error}");
        let released = guard.release().await.unwrap();
        assert_eq!(released, Released::Clean, "its session was set up again");
    }
}

#[tokio::test]
async fn a_client_whose_session_another_one_has_set_up_frees_no_lock_of_that_one() {
    let direct = PostgresServer::shared().database();
    let (pooler, url) = pooled(&direct);
    let url = format!("{url}?mode=advisory");
    set(&pooler, ONE_SESSION).await;
    let (here, there) = (open(&url).await, open(&url).await);
    set(&pooler, SHARE).await;
    let mut former = actor::connect(&here.pool).await.unwrap();
    let guard = there.acquire(&request("k", Wait::Never)).await.unwrap();
    assert!(
        !former.undo(guard.key(), false).await,
        "nothing is undone there"
    );
    assert!(former.is_over, "the session goes on");
    let other = open(&format!("{direct}?mode=advisory")).await;
    let error = other.acquire(&request("k", Wait::Never)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "two holders: {error}");
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
}

/// As of a pooler with `server_reset_query_always`.
#[tokio::test]
async fn a_probe_finds_that_a_pooler_has_reset_the_session() {
    let url = format!("{}?mode=advisory", PostgresServer::shared().database());
    let here = open(&url).await;
    let id = LeaseId::from_bytes([1; 16]);
    let mut actor = session_with(id, None, &here).await;
    actor.probe().await;
    assert!(!actor.is_over, "it is the session that was opened");
    let mut connection = actor.connection.take().unwrap();
    let reset = connection.run(&Sql::new("DISCARD ALL"), &[]).await;
    reset.unwrap();
    actor.connection = Some(connection);
    actor.probe().await;
    assert!(actor.is_over, "the server has freed its locks");
}

/// The pooler gives the session that one client has set up to a client with another table, whose keys are the same.
#[tokio::test]
async fn a_row_lock_behind_a_pooler_that_shares_sessions_is_one_of_its_own_table() {
    let direct = PostgresServer::shared().database();
    let (pooler, url) = pooled(&direct);
    let [here, other] = [&url, &direct].map(|url| format!("{url}?mode=row&table=others"));
    let (here, other) = (open(&here).await, open(&other).await);
    let there = open(&format!("{url}?mode=row")).await;
    let never = |name: &str| request(name, Wait::Never);
    for client in [&here, &there] {
        let guard = client.acquire(&never("k")).await.unwrap();
        guard.release().await.unwrap();
    }
    let held = other.acquire(&never("k")).await.unwrap();
    set(&pooler, SHARE).await;
    for n in 0..10 {
        // The pooler gives out the session that was used last.
        let guard = there.acquire(&never("k")).await.unwrap();
        guard.release().await.unwrap();
        let error = here.acquire(&never("k")).await.unwrap_err();
        assert!(held.is_held(), "nobody has broken it");
        assert_eq!(error.kind(), ErrorKind::Contended, "{n}: {error}");
    }
}

/// The token of another server may be smaller, and the reply of another session says nothing of this one.
#[tokio::test]
async fn a_holder_that_a_pooler_or_a_proxy_has_moved_draws_no_token() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let here = open(&url).await;
        let id = LeaseId::from_bytes([1; 16]);
        let mut actor = session_with(id, None, &here).await;
        let trusted_until = actor.handle.trusted_until();
        actor.connection = Some(here.open_another().await);
        let drawn = actor.draw_more(id).await;
        assert_eq!(drawn.ok().flatten(), None, "{url}");
        let is_proven = actor.handle.trusted_until() > trusted_until;
        assert!(actor.is_over || !is_proven, "its locks are extended: {url}");
    }
}

/// The other server has none of the locks.
#[tokio::test]
async fn a_release_that_a_proxy_has_moved_ends_the_session() {
    for (mode, record_at) in [
        ("advisory", None),
        ("row", None),
        ("row", Some(Instant::now())),
    ] {
        let url = format!("{}?mode={mode}", MariaDbServer::shared().database());
        let here = open(&url).await;
        let id = LeaseId::from_bytes([1; 16]);
        let mut actor = session_with(id, record_at, &here).await;
        actor.connection = Some(here.open_another().await);
        let released = actor.release(id).await;
        let failure = released.expect_err("it may have ended before");
        assert!(failure.outcome_unknown, "{mode}: {}", failure.cause);
        assert!(actor.is_over, "the session goes on: {mode}");
    }
}

/// The other server has no such table.
#[tokio::test]
async fn an_error_of_the_server_to_which_a_session_was_moved_extends_no_lock() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let here = open(&url).await;
        let mut actor = session_with(LeaseId::from_bytes([1; 16]), None, &here).await;
        let trusted_until = actor.handle.trusted_until();
        let (mut moved, sent) = (here.open_another().await, here.context.engine.now());
        let refused = moved.run(&Sql::new("SELECT 1 FROM none"), &[]).await;
        assert!(actor.answered(moved, sent, refused).is_err(), "{url}");
        assert!(actor.connection.is_some(), "the session goes on: {url}");
        assert_eq!(actor.handle.trusted_until(), trusted_until, "proven: {url}");
    }
}
