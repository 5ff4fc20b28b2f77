//! Sessions on real servers.

mod moved;
mod mysql_tokens;
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_testkit::locks::until;
use lock_testkit::servers::{MariaDbServer, PostgresServer};
use polylock_core::admin::LockAdmin as _;
use polylock_core::engine::{Engine, LeaseId};
use polylock_core::{AcquireRequest, ErrorKind, LockGuard, LockKey, LockUrl, Mode, Released, Wait};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::SqlSessions;
use super::actor::{self, Actor, HeldSessionLock};
use super::admin::break_lock;
use super::args::Args;
use super::handle::{SessionCommand, SessionHandle, SessionReply, SessionRequest};
use super::record::RECORD_AFTER;
use super::server_age;
use crate::budget::SqlBudget;
use crate::config::SqlConfig;
use crate::database::tests::{databases, until_blocked};
use crate::dialect::mysql::tokens;
use crate::dialect::{self, sequence};
use crate::error::{SqlCause, SqlFailure};
use crate::table::{TOKENS_AT_ONCE, TokenRange};
use crate::wire::{
    ConnectTarget, ErrorClass, Flavor, QueryResult, ServerConnection, Sql, SqlValue,
};

impl SqlSessions {
    async fn open_another(&self) -> ServerConnection {
        let opened = ServerConnection::open_first(&self.context.target).await;
        opened.unwrap()
    }
}

async fn open(url: &str) -> SqlSessions {
    let config = SqlConfig::from_url(&LockUrl::parse(url).unwrap()).unwrap();
    let target = Arc::new(ConnectTarget::of(config).unwrap());
    let flavor = [Flavor::MariaDb, Flavor::MySql][usize::from(MariaDbServer::is_mysql())];
    target.reported_flavor.get_or_init(|| flavor);
    let mut connection = ServerConnection::open_first(&target).await.unwrap();
    crate::schema::ensure(&mut connection).await.unwrap();
    SqlSessions::new(&Engine::of_this_process("test"), &target)
}

/// Runs statements on a connection of the control pool.
async fn run(here: &SqlSessions, text: &str, args: Args) -> QueryResult {
    here.context.control(&Sql::new(text), args).await.unwrap()
}

/// A database of its own on each server for each of these parameters.
fn urls(parameters: &[&str]) -> Vec<String> {
    let urls = parameters
        .iter()
        .flat_map(|parameters| databases().map(|url| format!("{url}?{parameters}")));
    urls.collect()
}

fn request(name: &str, wait: Wait) -> AcquireRequest {
    AcquireRequest::new(LockKey::new(name).unwrap()).with_wait(wait)
}

/// The guard of a lock whose holder others see.
async fn recorded(here: &SqlSessions) -> LockGuard {
    let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
    until("the holder is recorded", async || {
        here.inspect(guard.key()).await.unwrap().is_some()
    })
    .await;
    guard
}

/// A session that nothing serves yet, and that holds a lock as far as it knows.
async fn session_with(id: LeaseId, record_at: Option<Instant>, here: &SqlSessions) -> Actor {
    let mut actor = actor::connect(&here.pool).await.unwrap();
    let held = HeldSessionLock {
        key: LockKey::new("k").unwrap(),
        is_shared: false,
        label: String::new(),
        began: 0,
        token: 1,
        ttl: AcquireRequest::DEFAULT_TTL,
        since: 0,
        record_at,
        recording: None,
    };
    actor.held.insert(id, held);
    actor
}

/// Acquires a lock in a session that nothing serves.
async fn take(
    actor: &mut Actor,
    here: &SqlSessions,
    wait: Wait,
    until: Option<Instant>,
) -> Result<SessionReply, SqlFailure> {
    let request = request("k", wait);
    let budget = SqlBudget::of(&request);
    let reservation = here.pool.reservation(&request, &budget, true).await;
    let (reply, answer) = oneshot::channel();
    let (end, _ended) = oneshot::channel();
    let take = SessionRequest {
        reservation: reservation.unwrap(),
        key: request.key().clone(),
        id: LeaseId::from_bytes([1; 16]),
        is_shared: false,
        label: String::new(),
        ttl: request.ttl(),
        has_claimed: false,
        until,
        reply,
        _end: end,
    };
    actor.take(take).await;
    answer.await.unwrap()
}

/// A command for which a session sends no request: there is no such holder.
fn keep_busy(session: &SessionHandle) -> oneshot::Receiver<Result<Option<TokenRange>, SqlFailure>> {
    let id = LeaseId::from_bytes([0; 16]);
    session.send(|reply| SessionCommand::Draw { id, reply })
}

/// A session runs the commands that have arrived before it does anything else.
#[tokio::test]
async fn a_session_that_is_always_busy_is_probed_in_time() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let here = open(&url).await;
        let mut actor = session_with(LeaseId::from_bytes([1; 16]), None, &here).await;
        actor.probed -= here.context.probe_every();
        // The server's number is another one, and the probe ends the session.
        actor.number = -1;
        let session = Arc::clone(&actor.handle);
        let [first, second] = [(); 2].map(|()| keep_busy(&session));
        tokio::spawn(actor.serve()).await.unwrap();
        assert!(first.await.is_ok(), "it begins with a command");
        assert!(second.await.is_err(), "the probe came after all commands");
    }
}

/// PostgreSQL aborts the transaction of a probe that an administrator cancels, and frees its row.
#[tokio::test]
async fn a_probe_that_fails_extends_no_lock_on_a_row() {
    let url = format!("{}?mode=row", PostgresServer::shared().database());
    let here = open(&url).await;
    let mut actor = session_with(LeaseId::from_bytes([1; 16]), None, &here).await;
    let trusted_until = actor.handle.trusted_until();
    let mut connection = actor.connection.take().unwrap();
    let sent = here.context.engine.now();
    let cancelled = Sql::new("BEGIN; SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)");
    let db_error = connection.run(&cancelled, &[]).await.unwrap_err();
    assert_eq!(db_error.class, ErrorClass::Cancelled);
    let failure = actor.answered(connection, sent, Err(db_error));
    assert!(failure.is_err(), "it was cancelled");
    assert_eq!(actor.handle.trusted_until(), trusted_until, "proven");
    // The transaction is aborted, and so this fails as well.
    actor.probe().await;
    assert_eq!(actor.handle.trusted_until(), trusted_until, "proven");
    assert!(actor.is_over, "the session goes on");
    assert!(actor.connection.is_none(), "its locks count as kept");
}

/// The server does not end the wait in time, and the connection ends when the wait is cancelled.
#[tokio::test]
async fn a_wait_whose_session_ends_is_no_contention() {
    for mode in ["row", "advisory"] {
        let url = format!("{}?mode={mode}", PostgresServer::shared().database());
        let here = open(&url).await;
        let SqlSessions { context, .. } = open(&url).await;
        let mut context = Arc::into_inner(context).expect("no session has it");
        let statements = &mut context.statements;
        statements.wait_take = [(); 2].map(|()| Sql::new("SELECT pg_sleep(60)"));
        statements.cancel = Sql::new("SELECT pg_terminate_backend({6}::int)::int::bigint");
        let mut actor = actor::connect(&here.pool).await.unwrap();
        actor.context = Arc::new(context);
        let wait = Wait::AtMost(Duration::from_secs(1));
        // The wait is over, and so is the time in which the server may say that.
        let until = Some(Instant::now() - Duration::from_secs(1));
        let failure = take(&mut actor, &here, wait, until).await.err();
        assert!(failure.is_some_and(|it| it.is_outage()), "held: {mode}");
    }
}

/// The proxy has another server behind it, where holders may rely on locks of the one before.
#[tokio::test]
async fn a_connection_that_a_proxy_has_moved_is_granted_no_lock() {
    let server = MariaDbServer::shared();
    for (mode, has_same_number) in [
        ("row", false),
        ("row", true),
        ("advisory", false),
        ("advisory", true),
    ] {
        let here = open(&format!("{}?mode={mode}", server.database())).await;
        let mut actor = actor::connect(&here.pool).await.unwrap();
        let mut moved = here.open_another().await;
        let number = Sql::new("SELECT CAST(CONNECTION_ID() AS SIGNED)");
        let number = moved.run(&number, &[]).await.unwrap().int(0).unwrap();
        assert_ne!(number, actor.number);
        if has_same_number {
            actor.number = number;
        }
        actor.connection = Some(moved);
        let taken = take(&mut actor, &here, Wait::Never, None).await;
        let failure = taken.err().expect("it is not granted");
        assert_eq!(failure.is_late(), mode == "row", "{}", failure.cause);
        assert!(actor.is_over, "the next request has another session");
        let guard = here.acquire(&request("k", Wait::Never)).await;
        guard.expect("it is free").release().await.unwrap();
    }
}

/// As a proxy that takes the connection of a holder to another server, where its number may be the same.
#[tokio::test]
async fn a_probe_finds_that_a_proxy_has_moved_the_connection() {
    let server = MariaDbServer::shared();
    for (mode, has_same_number) in [("row", true), ("advisory", true), ("advisory", false)] {
        let here = open(&format!("{}?mode={mode}", server.database())).await;
        let mut actor = actor::connect(&here.pool).await.unwrap();
        actor.probe().await;
        assert!(!actor.is_over, "it is the session that was opened");
        let mut moved = here.open_another().await;
        let number = Sql::new("SELECT CAST(CONNECTION_ID() AS SIGNED)");
        let number = moved.run(&number, &[]).await.unwrap().int(0).unwrap();
        if has_same_number {
            actor.number = number;
        }
        actor.connection = Some(moved);
        let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
        let session = here.pool.sessions().pop().unwrap();
        for (id, control) in session.end() {
            actor.handle.attach(id, &control);
        }
        actor.probe().await;
        let what = format!("{mode}, the same number: {has_same_number}");
        assert!(actor.is_over, "{what}");
        assert!(
            !guard.is_held(),
            "its holder is to learn that at once: {what}"
        );
    }
}

/// Another transaction locks the record, so that it cannot be cleared yet. Without the wait, the record of a
/// shared holder would never be cleared.
#[tokio::test]
async fn a_shutdown_waits_for_the_records_of_released_locks() {
    for url in urls(&["mode=advisory&timeout=20s"]) {
        let (here, there) = (open(&url).await, open(&url).await);
        let other = async |text: &str| run(&there, text, Args::new()).await;
        let guard = recorded(&here).await;
        other("BEGIN; SELECT id FROM polylock_locks WHERE kind = 4 FOR UPDATE").await;
        assert_eq!(guard.release().await.unwrap(), Released::Clean);
        let is_done = here.shutdown(Duration::from_millis(100)).await;
        assert!(!is_done, "its record cannot be cleared yet");
        other("COMMIT").await;
        assert!(here.shutdown(Duration::from_secs(20)).await);
        let recorded = "SELECT COUNT(*) FROM polylock_locks WHERE kind = 4 AND id IS NOT NULL";
        assert_eq!(other(recorded).await.int(0), Some(0));
    }
}

/// Another transaction locks the record, so that the break has read it and cannot mark it yet.
#[tokio::test]
async fn a_holder_that_releases_meanwhile_is_not_said_to_be_broken() {
    for database in databases() {
        let url = format!("{database}?mode=advisory&timeout=20s");
        let (here, there) = (open(&url).await, open(&url).await);
        let other = async |text: &str| run(&there, text, Args::new()).await;
        let guard = recorded(&here).await;
        other("BEGIN; SELECT id FROM polylock_locks WHERE kind = 4 FOR UPDATE").await;
        let (operator, key) = (open(&url).await, guard.key().clone());
        let (broken, ()) = tokio::join!(operator.break_lock(&key, "why"), async {
            until_blocked(&database).await;
            assert_eq!(guard.release().await.unwrap(), Released::Clean);
            other("COMMIT").await;
        });
        assert_eq!(broken.unwrap(), None, "{database}");
    }
}

/// The break has read the record of the first lock and is about to mark it.
#[tokio::test]
async fn a_break_ends_no_session_that_has_released_the_lock_and_holds_another() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let url = MariaDbServer::shared().database() + "?mode=row&timeout=20s";
        let (here, there) = (open(&url).await, open(&url).await);
        let other = async |text: &str| run(&there, text, Args::new()).await;
        other("CREATE TABLE marking (n INT); DO GET_LOCK(CONCAT('mark ', DATABASE()), 0)").await;
        let first = request("k", Wait::Never).with_mode(mode);
        let first = here.acquire(&first).await.unwrap();
        let key = first.key().clone();
        until("the holder is recorded", async || {
            here.inspect(&key).await.unwrap().is_some()
        })
        .await;
        let SqlSessions { context, .. } = open(&url).await;
        let mut context = Arc::into_inner(context).expect("no session has it");
        context.statements.mark_broken = Sql::new(
            "INSERT INTO marking VALUES (1); DO GET_LOCK(CONCAT('mark ', DATABASE()), 60)",
        );
        let (broken, second) = tokio::join!(break_lock(&context, &key, "why"), async {
            until("the break marks the lock", async || {
                other("SELECT COUNT(*) FROM marking").await.int(0) == Some(1)
            })
            .await;
            assert_eq!(first.release().await.unwrap(), Released::Clean);
            let second = here.acquire(&request("j", Wait::Never)).await.unwrap();
            assert_eq!(here.pool.len(), 1, "it is in another session");
            other("DO RELEASE_LOCK(CONCAT('mark ', DATABASE()))").await;
            second
        });
        assert_eq!(broken.unwrap(), None, "{mode:?}");
        assert_eq!(second.release().await.unwrap(), Released::Clean);
    }
}

/// Another transaction locks the record, so that the release cannot clear it.
#[tokio::test]
async fn a_session_that_a_stale_record_names_holds_no_other_lock() {
    let url = MariaDbServer::shared().database() + "?mode=row";
    let (here, there) = (open(&url).await, open(&url).await);
    let other = async |text: &str| run(&there, text, Args::new()).await;
    let first = recorded(&here).await;
    let key = first.key().clone();
    other("BEGIN; SELECT id FROM polylock_locks WHERE kind = 3 FOR UPDATE").await;
    assert_eq!(first.release().await.unwrap(), Released::Clean);
    let second = here.acquire(&request("j", Wait::Never)).await.unwrap();
    other("COMMIT").await;
    let stale = "SELECT COUNT(*) FROM polylock_locks WHERE kind = 3 AND lock_key = {1}
                     AND id IS NOT NULL";
    let stale = run(&here, stale, here.context.args(&key)).await;
    assert_eq!(stale.int(0), Some(1), "it was cleared");
    until("the session of the record ends", async || {
        here.inspect(&key).await.unwrap().is_none()
    })
    .await;
    assert_eq!(here.break_lock(&key, "why").await.unwrap(), None);
    assert_eq!(second.release().await.unwrap(), Released::Clean);
}

/// The record names an earlier transaction, and the server shows this user no transactions of others.
#[tokio::test]
async fn a_break_ends_no_session_that_may_hold_another_lock() {
    let server = PostgresServer::shared();
    let database = server.database();
    let here = open(&format!("{database}?mode=row")).await;
    let guard = recorded(&here).await;
    let earlier = "UPDATE polylock_locks SET session_began = session_began - 1 WHERE kind = 3";
    run(&here, earlier, Args::new()).await;
    let user = format!(
        "breaker_{}",
        server.sql(&database, "SELECT txid_current()")[0][0]
    );
    let create = format!(
        "CREATE ROLE {user} LOGIN PASSWORD 'test' IN ROLE pg_signal_backend;
         GRANT SELECT, INSERT, UPDATE ON polylock_locks TO {user}"
    );
    server.sql(&database, &create);
    let other = database.replace("test:test@", &format!("{user}:test@"));
    let other = open(&format!("{other}?mode=row")).await;
    let broken = other.break_lock(guard.key(), "why").await;
    let error = broken.expect_err("it is not known whose session it is");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
}

/// The server does not say since when a session has its transaction.
#[tokio::test]
async fn a_holder_is_listed_by_a_server_that_tracks_no_transactions() {
    let server = PostgresServer::shared();
    let database = server.database();
    let name = database.rsplit('/').next().unwrap();
    let untracked = format!("ALTER DATABASE {name} SET track_activities = off");
    server.sql(&database, &untracked);
    let here = open(&format!("{database}?mode=row")).await;
    let guard = recorded(&here).await;
    assert_eq!(here.list("").await.unwrap().len(), 1);
    let broken = here.break_lock(guard.key(), "why").await;
    let error = broken.expect_err("it is not known which lock it holds");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    assert!(here.list("").await.unwrap().is_empty());
}

/// The server refuses to say whether the session that was ended is gone.
#[tokio::test]
async fn a_break_that_fails_after_it_ended_a_session_has_an_unknown_outcome() {
    let url = PostgresServer::shared().database() + "?mode=advisory";
    let here = open(&url).await;
    let guard = recorded(&here).await;
    run(&here, "CREATE SEQUENCE calls", Args::new()).await;
    let SqlSessions { context, .. } = open(&url).await;
    let mut context = Arc::into_inner(context).expect("no session has it");
    // It is alive at the first call, and the second one divides by zero.
    context.statements.alive = Sql::new("SELECT (1 / (2 - nextval('calls')))::bigint");
    let broken = break_lock(&context, guard.key(), "why").await;
    let failure = broken.expect_err("the second call is refused");
    assert!(failure.outcome_unknown, "{}", failure.cause);
    guard.lost().await;
}

/// A holder that has lost its session, and does not know it yet, draws no tokens to hand the lock
/// over: they would be larger than the token of the new holder.
#[tokio::test]
async fn a_holder_that_lost_the_lock_draws_no_token() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let (here, there) = (open(&url).await, open(&url).await);
        let key = LockKey::new("k").unwrap();
        let lost = here.acquire(&request("k", Wait::Never)).await.unwrap();
        let session = here.pool.sessions().pop().unwrap();
        let id = session.holders().pop().unwrap();
        let draw = async || {
            let drawn = session.send(|reply| SessionCommand::Draw { id, reply });
            drawn.await.ok().and_then(Result::ok).flatten()
        };
        let block = draw().await.expect("a holder draws");
        assert!(block.next > u64::from(lost.fencing_token().unwrap()));
        assert_eq!(block.last - block.next + 1, TOKENS_AT_ONCE);
        assert!(there.break_lock(&key, "why").await.unwrap().is_some());
        assert_eq!(draw().await, None);
        let wait = Wait::AtMost(Duration::from_secs(5));
        let held = there.acquire(&request("k", wait)).await.unwrap();
        assert!(u64::from(held.fencing_token().unwrap()) > block.last);
        held.release().await.unwrap();
    }
}

/// Two switchovers bring back the start that was read, with other sessions on it: waiting for the
/// earlier sessions does not cover these.
#[tokio::test]
async fn a_start_is_admitted_in_the_place_of_the_one_that_was_read() {
    for url in urls(&["mode=row"]) {
        let here = open(&url).await;
        let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
        guard.release().await.unwrap();
        let replace = "UPDATE polylock_locks SET name = {10}, version = {5} WHERE kind = 7";
        let read = "SELECT name, version FROM polylock_locks WHERE kind = 7";
        let started = run(&here, read, Args::new()).await.rows;
        let before = Args::new()
            .with(Args::NAME, &b"before"[..])
            .with(Args::SEEN, 7_u64);
        run(&here, replace, before).await;
        let admit = |version: i64| {
            let args = Args::new()
                .with(Args::SESSION_ID, &[9_u8; 16][..])
                .with(Args::TIMEOUT, 1_000_u64)
                .with(Args::LABEL, "data")
                .with(Args::TEXT, &b"before"[..])
                .with(Args::SEEN, version);
            here.context
                .control_pool
                .run(&here.context.statements.start.admit, args.into_vec())
        };
        let refused = admit(5).await.unwrap();
        assert!(!server_age::is_recorded(&refused), "admitted by its name");
        let kept = run(&here, read, Args::new()).await.rows;
        assert_eq!(kept[0][0].bytes(), Some(&b"before"[..]));
        assert_eq!(kept[0][1].int(), Some(7));
        let admitted = admit(7).await.unwrap();
        assert!(
            server_age::is_recorded(&admitted),
            "refused, though it was read"
        );
        let after = run(&here, read, Args::new()).await.rows;
        assert_eq!(after[0][0].bytes(), started[0][0].bytes());
        assert_eq!(after[0][1].int(), Some(8));
    }
}

/// While a new session counted twice, a waiter could take the one that is kept for attempts, and free locks
/// were not granted until a wait ended.
#[tokio::test]
async fn a_new_session_counts_once() {
    let here = open(&(PostgresServer::shared().database() + "?mode=advisory")).await;
    let (pool, is_over) = (Arc::clone(&here.pool), Arc::new(AtomicBool::new(false)));
    let sampler = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut max = 0;
            while !is_over.load(Ordering::Relaxed) {
                max = max.max(pool.len());
            }
            max
        }
    });
    for _ in 0..60 {
        let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
        guard.release().await.unwrap();
        here.pool.retire_idle().await;
    }
    is_over.store(true, Ordering::Relaxed);
    assert_eq!(sampler.join().unwrap(), 1);
}

/// The record of a hold that was not written down at once comes a moment later, and never after the
/// release.
#[tokio::test]
async fn no_record_outlives_its_holder() {
    let here = open(&(MariaDbServer::shared().database() + "?mode=row")).await;
    let key = LockKey::new("k").unwrap();
    for round in 0..16 {
        let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
        // From before the record is begun until after it is written.
        let held = RECORD_AFTER + Duration::from_micros(round * 300);
        sleep(held).await;
        assert_eq!(guard.release().await.unwrap(), Released::Clean);
        assert_eq!(here.inspect(&key).await.unwrap(), None);
        tokio::task::yield_now().await;
        assert_eq!(here.inspect(&key).await.unwrap(), None);
    }
}

/// A key that is always read has one record, to which each reader adds itself.
#[tokio::test]
async fn a_reader_that_died_leaves_no_record() {
    let advisory = format!("{}?mode=advisory", PostgresServer::shared().database());
    for url in urls(&["mode=row"]).into_iter().chain([advisory]) {
        let (here, there) = (open(&url).await, open(&url).await);
        let read = request("k", Wait::Never).with_mode(Mode::Shared);
        let lives = here.acquire(&read).await.unwrap();
        let dies = there.acquire(&read).await.unwrap();
        let [live, dead] = [&here, &there].map(|it| it.pool.sessions().pop().unwrap().id);
        let recorded = async |id: LeaseId| {
            let read = "SELECT shared FROM polylock_locks WHERE kind IN (3, 4)";
            let answer = run(&here, read, Args::new()).await;
            let record = answer.rows.first().and_then(|row| row[0].bytes());
            String::from_utf8_lossy(record.unwrap_or_default()).contains(&id.to_hex())
        };
        until("both are recorded", async || {
            recorded(live).await && recorded(dead).await
        })
        .await;
        let of_session = async |columns: &str| {
            let read =
                format!("SELECT {columns} FROM polylock_locks WHERE kind = 6 AND lock_key = {{2}}");
            let args = Args::new().with(Args::SESSION_ID, &dead.as_bytes()[..]);
            run(&here, &read, args).await.int(0)
        };
        let end = match here.context.target.config.server.is_postgres() {
            true => "SELECT pg_terminate_backend({6}::int)::int::bigint",
            false => "KILL {6}",
        };
        let number = of_session("session").await.unwrap();
        run(&here, end, Args::new().with(Args::SESSION, number)).await;
        dies.lost().await;
        until("its session is forgotten", async || {
            of_session("COUNT(*)").await == Some(0)
        })
        .await;
        here.pool.sweep();
        until("the reader is forgotten", async || !recorded(dead).await).await;
        assert!(recorded(live).await, "a reader that lives is forgotten");
        assert_eq!(lives.release().await.unwrap(), Released::Clean);
    }
}

/// The clock of the server was set back after an exclusive request had claimed the key.
#[tokio::test]
async fn a_claim_from_the_future_keeps_no_shared_request_out() {
    let here = Arc::new(open(&(PostgresServer::shared().database() + "?mode=row")).await);
    let read = request("k", Wait::Never).with_mode(Mode::Shared);
    let first = here.acquire(&read).await.unwrap();
    let now = dialect::postgres::NOW;
    let claim = format!(
        "INSERT INTO polylock_locks (kind, lock_key, claimed_until, changed_at)
         VALUES (3, {{1}}, {now} + 3600000000, {now})
         ON CONFLICT (kind, lock_key, slot) DO UPDATE SET claimed_until = excluded.claimed_until"
    );
    run(&here, &claim, here.context.args(first.key())).await;
    let second = here.acquire(&read).await.expect("no request waits");
    second.release().await.unwrap();
    let waiter = {
        let here = Arc::clone(&here);
        let write = request("k", Wait::AtMost(Duration::from_secs(60)));
        tokio::spawn(async move { here.acquire(&write).await })
    };
    until("the claim of a waiter counts", async || {
        match here.acquire(&read).await {
            Ok(guard) => {
                guard.release().await.unwrap();
                false
            }
            Err(error) => error.kind() == ErrorKind::Contended,
        }
    })
    .await;
    first.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// Two tasks use the only connections and ask again right after each release; a third task asks for
/// another key.
#[tokio::test]
async fn a_request_that_waits_for_a_connection_gets_one() {
    let server = PostgresServer::shared();
    let url = format!("{}?mode=row&connections=2", server.database());
    let here = Arc::new(open(&url).await);
    let busy = ["a", "b"].map(|name| {
        let here = Arc::clone(&here);
        tokio::spawn(async move {
            loop {
                let guard = here.acquire(&request(name, Wait::Forever)).await.unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    for round in 0..10 {
        let wait = Wait::AtMost(Duration::from_secs(10));
        let guard = here.acquire(&request("c", wait)).await;
        let guard = guard.unwrap_or_else(|e| panic!("round {round}: {e}"));
        sleep(Duration::from_millis(5)).await;
        guard.release().await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
    assert!(busy.iter().all(|task| !task.is_finished()));
    busy.iter().for_each(JoinHandle::abort);
}

/// Free locks of many tasks use up to half of the connections; requests that have to wait get the
/// others, and are notified there.
#[tokio::test]
async fn many_free_locks_share_half_of_the_connections() {
    let (most, mut longest) = (Duration::from_millis(700), [Duration::MAX; 2]);
    // Up to three times on each server: a busy machine may stop the process in a hand-over.
    let all = urls(&["mode=advisory&connections=6"; 3]);
    for (at, url) in all.into_iter().enumerate() {
        let longest = &mut longest[at % 2];
        if *longest < most {
            continue;
        }
        let (here, there) = (Arc::new(open(&url).await), open(&url).await);
        let connections = here.context.connections;
        let mut held = Vec::new();
        for n in 1..connections {
            let request = request(&format!("held/{n}"), Wait::Never);
            held.push(there.acquire(&request).await.unwrap());
        }
        let busy: Vec<_> = (0..32)
            .map(|n| {
                let here = Arc::clone(&here);
                tokio::spawn(async move {
                    loop {
                        let request = request(&format!("free/{n}"), Wait::Never);
                        let guard = here.acquire(&request).await.unwrap();
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(10);
        while here.pool.len() < connections / 2 && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        // More would be opened by then.
        sleep(Duration::from_millis(100)).await;
        assert_eq!(here.pool.len(), connections / 2, "opened for free locks");
        let waiters: Vec<_> = (1..connections)
            .map(|n| {
                let here = Arc::clone(&here);
                tokio::spawn(async move {
                    let wait = Wait::AtMost(Duration::from_secs(20));
                    let guard = here.acquire(&request(&format!("held/{n}"), wait)).await;
                    let granted = Instant::now();
                    guard.unwrap().release().await.unwrap();
                    granted
                })
            })
            .collect();
        // Each has a connection by then, and nothing of this process asks again within a second.
        let deadline = Instant::now() + Duration::from_secs(10);
        while here.pool.waiters() < connections - 1 {
            assert!(Instant::now() < deadline, "a waiter has no connection");
            sleep(Duration::from_millis(5)).await;
        }
        let released = Instant::now();
        for guard in held {
            guard.release().await.unwrap();
        }
        *longest = Duration::ZERO;
        for waiter in waiters {
            *longest = waiter.await.unwrap().duration_since(released).max(*longest);
        }
        assert!(busy.iter().all(|task| !task.is_finished()));
        busy.iter().for_each(JoinHandle::abort);
    }
    assert!(longest.iter().all(|it| *it < most), "after {longest:?}");
}

/// While a waiter waits, its predecessor reserves tokens for hand-overs.
#[tokio::test]
async fn a_waiter_draws_its_token_after_the_lock_was_free() {
    for url in urls(&["mode=row", "mode=advisory"]) {
        let (here, there) = (open(&url).await, open(&url).await);
        let guard = here.acquire(&request("k", Wait::Never)).await.unwrap();
        let waiter = request("k", Wait::AtMost(Duration::from_secs(20)));
        let (next, drawn) = tokio::join!(there.acquire(&waiter), async {
            let (database, _) = url.split_once('?').expect("it has a mode");
            until_blocked(database).await;
            let other = here.acquire(&request("other", Wait::Never)).await.unwrap();
            guard.release().await.unwrap();
            other.fencing_token()
        });
        assert!(next.unwrap().fencing_token() > drawn, "{url}");
    }
}

/// MySQL has no sequences: what it counts by is as good, and MariaDB has it as well.
#[tokio::test]
async fn rows_that_are_rolled_back_count_tokens() {
    let here = open(&(MariaDbServer::shared().database() + "?mode=row")).await;
    let numbers = async |text: String| {
        let answer = run(&here, &text, Args::new()).await;
        let row = answer.rows.last().cloned().unwrap_or_default();
        row.iter().filter_map(SqlValue::int).collect::<Vec<_>>()
    };
    let (table, flavor) = ("`of_mysql`", Flavor::MySql);
    let counter = sequence(table);
    numbers(format!(
        "CREATE TABLE {counter} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)"
    ))
    .await;
    let raise = tokens::raise(table, flavor);
    let (insert, token) = tokens::draw(table, flavor);
    let draw = format!("START TRANSACTION; {insert} SELECT {token}; ROLLBACK");
    let block = tokens::draw_block(table, 64, flavor, "1");
    let block = format!("START TRANSACTION; {block}; ROLLBACK");
    let now = i64::try_from(super::loss_report::unix_now()).unwrap();
    numbers(raise.clone()).await;
    let mut last = now - 1_000_000;
    for _ in 0..3 {
        let drawn = numbers(draw.clone()).await;
        assert!(drawn[0] > last, "{drawn:?} after {last}");
        let drawn = numbers(block.clone()).await;
        assert!(drawn[0] > last && drawn[1] == drawn[0] + 63, "{drawn:?}");
        last = drawn[1];
    }
    // A clock that was set back takes nothing back.
    let ahead = last + 1_000_000_000_000;
    numbers(format!(
        "START TRANSACTION; INSERT INTO {counter} (id) VALUES ({ahead}); ROLLBACK"
    ))
    .await;
    numbers(raise).await;
    assert!(numbers(draw).await[0] > ahead);
    assert_eq!(
        numbers(format!("SELECT COUNT(*) FROM {counter}")).await,
        [0]
    );
}

/// A sequence that is ahead of the clock loses more numbers in a crash than the reserve covers.
#[tokio::test]
async fn sessions_that_open_do_not_move_the_tokens_ahead_of_the_clock() {
    use crate::dialect::postgres::NOW;
    use crate::dialect::postgres::tokens::{self, RESERVE};

    let here = open(&format!("{}?mode=row", PostgresServer::shared().database())).await;
    let number = async |text: &str| {
        let answer = run(&here, text, Args::new()).await;
        answer.last_int(0).unwrap()
    };
    let table = "\"polylock_locks\"";
    let sequence = sequence(table);
    let last = format!("SELECT last_value FROM {sequence}");
    let ahead = format!("SELECT last_value - {NOW} FROM {sequence}");
    let raise = tokens::raise(table);
    let draw = format!("SELECT {}", tokens::draw(table));
    // A thousand in a second or so, which draw tokens.
    let many = format!("{raise}; {draw}; ").repeat(100);
    for _ in 0..10 {
        number(&format!("BEGIN; {many}COMMIT")).await;
    }
    let reserve = i64::from(RESERVE);
    assert!(number(&ahead).await < reserve);
    // As if the clock had been set back by an hour.
    number(&format!("SELECT setval('{sequence}', {NOW} + 3600000000)")).await;
    let before = number(&last).await;
    number(&raise).await;
    assert!(number(&last).await >= before + reserve);
}
