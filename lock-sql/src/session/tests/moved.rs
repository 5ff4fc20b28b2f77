//! Sessions behind a pooler that gives their statements to sessions of others.

use super::*;

/// Moves a session as a pooler does that nobody has declared, to a session of the server that has the lock for another
/// client.
async fn move_to_holder(actor: &mut Actor, here: &SqlSessions, key: &LockKey) {
    let mut holder = here.open_another().await;
    let taken = Sql::new("SELECT pg_try_advisory_lock({3})::int::bigint");
    let taken = holder.run(&taken, here.context.args(key).values()).await;
    assert_eq!(taken.unwrap().int(0), Some(1), "it is free");
    actor.connection = Some(holder);
}

#[tokio::test]
async fn a_request_that_a_pooler_has_moved_frees_no_lock_of_others() {
    let url = format!("{}?mode=advisory", PostgresServer::shared().database());
    let (here, other) = (open(&url).await, open(&url).await);
    let mut actor = actor::connect(&here.pool).await.unwrap();
    let guard = here.acquire(&request("held", Wait::Never)).await.unwrap();
    let session = here.pool.sessions().pop().unwrap();
    for (id, control) in session.end() {
        actor.handle.attach(id, &control);
    }
    move_to_holder(&mut actor, &here, request("k", Wait::Never).key()).await;
    let refused = take(&mut actor, &here, Wait::Never, None).await;
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

#[tokio::test]
async fn a_release_that_a_pooler_has_moved_frees_no_lock_of_others() {
    let url = format!("{}?mode=advisory", PostgresServer::shared().database());
    let (here, other) = (open(&url).await, open(&url).await);
    let id = LeaseId::from_bytes([1; 16]);
    let mut actor = session_with(id, None, &here).await;
    let key = actor.held[&id].key.clone();
    move_to_holder(&mut actor, &here, &key).await;
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
    let url = format!("{}?mode=advisory", PostgresServer::shared().database());
    let (here, other) = (open(&url).await, open(&url).await);
    let id = LeaseId::from_bytes([1; 16]);
    let mut actor = session_with(id, None, &here).await;
    let key = actor.held[&id].key.clone();
    move_to_holder(&mut actor, &here, &key).await;
    let failure = actor.downgrade(id).await.unwrap_err();
    assert!(failure.ends_session(), "{}", failure.cause);
    assert!(actor.is_over, "the session goes on");
    let reader = request("k", Wait::Never).with_mode(Mode::Shared);
    let error = other.acquire(&reader).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "two holders: {error}");
}
