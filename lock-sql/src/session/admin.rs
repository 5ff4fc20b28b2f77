//! Administration of the sessions of all processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::{LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::LeaseId;
use polylock_core::{Error, ErrorKind, FencingToken, LeaseState, LockKey, Mode, Released, Result};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::SqlSessions;
use super::args::Args;
use super::context::SessionContext;
use super::loss_report::ID_LEN;
use super::pool;
use super::record::SharedHolder;
use crate::admin::cut;
use crate::config::SqlMode;
use crate::error::{SqlCause, SqlFailure};
use crate::table::holder_info;
use crate::wire::{SqlValue, hex};

/// A held lock, and the sessions that hold it.
struct SeenSessions {
    info: LockInfo,
    sessions: Vec<ListedSession>,
}

struct ListedSession {
    id: Vec<u8>,
    number: i64,
    began: i64,
    /// The id that we gave it.
    by: Vec<u8>,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for SqlSessions {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        pool::record_all().await;
        let listed = list(&self.context, prefix).await;
        listed.map_err(|failure| self.named(failure))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        pool::record_all().await;
        let seen = self.of(key, inspect(&self.context, key).await)?;
        Ok(seen.map(|seen| seen.info))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason = cut(reason);
        pool::record_all().await;
        let broken = self.of(key, break_lock(&self.context, key, reason).await)?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (context, prefix) = (Arc::clone(&self.context), prefix.to_owned());
        let backend = self.capabilities.backend;
        watch_by_polling(move || {
            let (context, prefix) = (Arc::clone(&context), prefix.clone());
            async move {
                let held = list(&context, &prefix).await;
                held.map_err(|failure| Error::from(failure).with_backend(backend))
            }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, _: LeaseId, _: Duration) -> Result<LeaseState> {
        Err(self.lives_with_its_session(key))
    }

    async fn release_lease(&self, key: &LockKey, _: LeaseId) -> Result<Released> {
        Err(self.lives_with_its_session(key))
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        _: LeaseId,
        _: LeaseId,
        _: Duration,
    ) -> Result<Option<FencingToken>> {
        Err(self.lives_with_its_session(key))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        self.of(key, self.records.read(key).await)
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        self.of(key, record.check())?;
        self.of(key, self.records.write(key, record, keep).await)
    }
}

impl SqlSessions {
    fn lives_with_its_session(&self, key: &LockKey) -> Error {
        let message = "a lock of this mode lives with the connection of its holder";
        self.named(Error::new(ErrorKind::Unsupported, message))
            .with_key(key)
    }
}

async fn list(context: &SessionContext, prefix: &str) -> Result<Vec<LockInfo>, SqlFailure> {
    let (from, to) = crate::dialect::range(prefix);
    let args = Args::new().with(Args::ROW_KEY, from).with(Args::UP_TO, to);
    let answer = context.ask(&context.statements.list, args).await?;
    let mut listed = Vec::new();
    for row in &answer.rows {
        let seen = read(context, row).await?;
        listed.extend(seen.map(|seen| seen.info));
    }
    Ok(listed)
}

async fn inspect(
    context: &SessionContext,
    key: &LockKey,
) -> Result<Option<SeenSessions>, SqlFailure> {
    let inspect = &context.statements.inspect;
    let answer = context.ask(inspect, context.args(key)).await?;
    match answer.rows.first() {
        Some(row) => read(context, row).await,
        None => Ok(None),
    }
}

/// Ends the sessions of all holders, after recording whose lock was broken. Returns the lock with those whose
/// sessions it has ended. If all of them had released it by themselves, the next ones are present.
pub(super) async fn break_lock(
    context: &SessionContext,
    key: &LockKey,
    reason: &str,
) -> Result<Option<LockInfo>, SqlFailure> {
    let mut is_in_doubt = false;
    let broken = end_holders(context, key, reason, &mut is_in_doubt).await;
    broken.map_err(|failure| SqlFailure {
        outcome_unknown: failure.outcome_unknown || is_in_doubt,
        ..failure
    })
}

/// `is_in_doubt` says that a session may have been ended by then.
async fn end_holders(
    context: &SessionContext,
    key: &LockKey,
    reason: &str,
    is_in_doubt: &mut bool,
) -> Result<Option<LockInfo>, SqlFailure> {
    loop {
        let Some(mut seen) = inspect(context, key).await? else {
            return Ok(None);
        };
        let ids: Vec<u8> = seen
            .sessions
            .iter()
            .flat_map(|session| session.id.clone())
            .collect();
        let args = context
            .args(key)
            .with(Args::LEASE, ids)
            .with(Args::TEXT, reason);
        let mark = &context.statements.mark_broken;
        context.control(mark, args).await?;
        let mut ended = Vec::new();
        for (holder, session) in std::mem::take(&mut seen.info.holders)
            .into_iter()
            .zip(&seen.sessions)
        {
            if terminate(context, key, session, is_in_doubt).await? {
                seen.info.holders.push(holder);
                ended.push(session);
            }
        }
        let until = Instant::now() + context.request_timeout;
        for session in ended {
            while is_alive(context, key, session).await? {
                if Instant::now() >= until {
                    return Err(SqlFailure::silent(context.request_timeout, true));
                }
                sleep(LOOKING).await;
            }
        }
        if !seen.info.holders.is_empty() {
            return Ok(Some(seen.info));
        }
    }
}

/// Ends the session of a holder. False if it had released the lock before; true also if a request without a
/// reply may have ended it.
async fn terminate(
    context: &SessionContext,
    key: &LockKey,
    session: &ListedSession,
    is_in_doubt: &mut bool,
) -> Result<bool, SqlFailure> {
    // It may have released the lock since it was read, and hold others.
    if !is_alive(context, key, session).await? {
        return Ok(false);
    }
    let args = args_of(context, key, session);
    let is_postgres = context.target.config.server.is_postgres();
    // The server checks once more whether the session holds the lock.
    let failure = match context.control(&context.statements.terminate, args).await {
        Ok(answer) => {
            let is_ended = !is_postgres || answer.int(0) == Some(1);
            *is_in_doubt |= is_ended;
            // A transaction that has ended does not come back: the server does not show it.
            if !is_ended && context.mode == SqlMode::Row && is_alive(context, key, session).await? {
                return Err(hidden());
            }
            return Ok(is_ended);
        }
        Err(failure) => failure,
    };
    *is_in_doubt |= failure.outcome_unknown;
    // It may have released the lock or ended by itself meanwhile.
    match is_alive(context, key, session).await? {
        true => Err(failure),
        false => Ok(failure.outcome_unknown),
    }
}

async fn is_alive(
    context: &SessionContext,
    key: &LockKey,
    session: &ListedSession,
) -> Result<bool, SqlFailure> {
    let args = args_of(context, key, session);
    let answer = context.ask(&context.statements.alive, args).await?;
    Ok(answer.int(0).is_some_and(|count| count > 0))
}

/// The arguments of statements about the session of a holder.
fn args_of(context: &SessionContext, key: &LockKey, session: &ListedSession) -> Args {
    context
        .args(key)
        .with(Args::SESSION, session.number)
        .with(Args::SESSION_ID, session.by.clone())
        .with(Args::BEGAN, session.began)
        .with(Args::LEASE, session.id.clone())
        .with(Args::TEXT, hex(&session.id))
}

/// The session may hold the lock of another key by now, and is left alone.
fn hidden() -> SqlFailure {
    let says = "the server does not show whether the session still holds the lock: use the role of \
                the holder, or one with pg_read_all_stats and pg_signal_backend, and \
                track_activities=on";
    let cause = SqlCause::Said {
        kind: ErrorKind::Denied,
        says: says.to_owned(),
        source: None,
    };
    cause.into()
}

/// Reads a record; `None` if the lock is free.
async fn read(
    context: &SessionContext,
    row: &[SqlValue],
) -> Result<Option<SeenSessions>, SqlFailure> {
    let table = context.scope.rsplit('\0').next().unwrap_or_default();
    let malformed = || SqlFailure::from(SqlCause::malformed(table));
    let bytes = |at: usize| row.get(at).and_then(SqlValue::bytes);
    let int = |at: usize| row.get(at).and_then(SqlValue::int);
    let key = bytes(0).ok_or_else(malformed)?;
    let key = LockKey::from_stored(key).map_err(|_| malformed())?;
    if let Some(id) = bytes(1) {
        let is_alive = int(9).is_some_and(|count| count > 0);
        if !is_alive || id.len() != ID_LEN {
            return Ok(None);
        }
        let label = String::from_utf8_lossy(bytes(3).ok_or_else(malformed)?).into_owned();
        let token = int(2).and_then(|token| u64::try_from(token).ok());
        let since = int(4).and_then(|since| u64::try_from(since).ok());
        let holder = holder_info(&label, token, since);
        let session = ListedSession {
            id: id.to_vec(),
            number: int(5).ok_or_else(malformed)?,
            began: int(6).ok_or_else(malformed)?,
            by: bytes(7).unwrap_or_default().to_vec(),
        };
        return Ok(Some(SeenSessions {
            info: LockInfo::new(key, Mode::Exclusive, vec![holder]),
            sessions: vec![session],
        }));
    }
    let Some(shared) = bytes(8) else {
        return Ok(None);
    };
    let entries: BTreeMap<String, SharedHolder> =
        serde_json::from_slice(shared).map_err(|_| malformed())?;
    let (mut holders, mut sessions) = (Vec::new(), Vec::new());
    for (id, entry) in entries {
        let session = ListedSession {
            id: bytes_of(&id).ok_or_else(malformed)?,
            number: entry.session,
            began: entry.began,
            by: bytes_of(&entry.by).ok_or_else(malformed)?,
        };
        if is_alive(context, &key, &session).await? {
            let (token, since) = (Some(entry.token), Some(entry.since));
            holders.push(holder_info(&entry.label, token, since));
            sessions.push(session);
        }
    }
    let info = LockInfo::new(key, Mode::Shared, holders);
    Ok((!sessions.is_empty()).then_some(SeenSessions { info, sessions }))
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    LeaseId::from_hex(hex).map(|id| id.as_bytes().to_vec())
}

/// Poll interval for the end of a session that was terminated.
const LOOKING: Duration = Duration::from_millis(5);
