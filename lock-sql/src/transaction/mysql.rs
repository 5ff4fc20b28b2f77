use std::time::Duration;

use polylock_core::{Error, ErrorKind, LockKey, Result, Wait};
use sqlx::MySqlConnection;

use super::connection::DatabaseTransaction;
use super::place::QualifiedTable;
use super::server::{
    FENCE, LOCKED, busy, check_layout, excludes, failed, failed_at, malformed, no_transaction,
    numbers, raised,
};
use crate::config::ServerKind;
use crate::dialect::mysql::server_age::{self, LINEAGE, START};
use crate::dialect::mysql::{NOW, tokens};
use crate::session::args::Args;
use crate::session::server_age::{first_text, witness_args};
use crate::wire::{DbError, ErrorClass, QueryResult, Sql, literal, mysql};

impl DatabaseTransaction for MySqlConnection {
    const BACKEND: &str = "mysql";

    async fn take(&mut self, place: &QualifiedTable, key: &LockKey, wait: Wait) -> Result<u64> {
        let statements = format!(
            "SET @polylock_wait = @@SESSION.innodb_lock_wait_timeout, \
                 SESSION innodb_lock_wait_timeout = {}; {}; {RESTORE}",
            limit(wait),
            take(place, key, wait)
        );
        let db_error = match within_transaction(self, &statements).await? {
            Ok(answer) => {
                let numbers = numbers(&answer).ok_or_else(|| malformed(place))?;
                let (token, layout, is_admitted) = numbers;
                check_layout(place, layout)?;
                if !is_admitted {
                    check_start(self, place).await?;
                }
                return Ok(token);
            }
            Err(db_error) => db_error,
        };
        if db_error.class.ends_connection() {
            return Err(failed(db_error));
        }
        let restored = mysql::text(self, RESTORE.to_owned()).await;
        restored.map_err(failed)?;
        match db_error.class {
            ErrorClass::LockTimeout => {
                still_open(self).await?;
                Err(Error::contended(wait))
            }
            _ => Err(failed_at(ServerKind::MySql, place, db_error)),
        }
    }

    async fn raise(
        &mut self,
        place: &QualifiedTable,
        resource: &LockKey,
        token: u64,
    ) -> Result<u64> {
        match within_transaction(self, &raise(place, resource, token)).await? {
            Ok(answer) => raised(&answer, place),
            Err(db_error) if db_error.class == ErrorClass::LockTimeout => {
                still_open(self).await?;
                Err(busy(db_error))
            }
            Err(db_error) => Err(failed_at(ServerKind::MySql, place, db_error)),
        }
    }
}

/// Refuses a server if holders of sessions from before a restart may still rely on their locks.
async fn check_start(raw: &mut MySqlConnection, place: &QualifiedTable) -> Result<()> {
    let lineage = mysql::text(raw, LINEAGE.to_owned()).await;
    let lineage = lineage.map_err(failed)?;
    let read = Sql::new(server_age::read(&place.quoted('`', "")));
    let read = read.literal(witness_args(Args::new()).values(), ServerKind::MySql);
    let answer = mysql::text(raw, read).await.map_err(failed)?;
    excludes(&answer, &first_text(&lineage), place)
}

/// Runs statements in the transaction of the caller; the outer error says that no transaction is open.
///
/// Outside of a transaction, a savepoint ends with its statement. The second savepoint stays until the
/// statements are done: see [`still_open`].
async fn within_transaction(
    raw: &mut MySqlConnection,
    statements: &str,
) -> Result<Result<QueryResult, DbError>> {
    let text = format!("{SAVEPOINT}; {RELEASE}; {SAVEPOINT}; {statements}; {RELEASE}");
    match mysql::text(raw, text).await {
        Err(db_error) if is_no_savepoint(&db_error) => Err(no_transaction(db_error)),
        done => Ok(done),
    }
}

/// Checks after a lock timeout that the transaction is still the one that began before the wait.
///
/// With `innodb_rollback_on_timeout`, the server rolls the transaction back and begins another one, in
/// which a new savepoint can be set. The savepoint of [`within_transaction`] is gone then.
async fn still_open(raw: &mut MySqlConnection) -> Result<()> {
    match mysql::text(raw, RELEASE.to_owned()).await {
        Err(db_error) if is_no_savepoint(&db_error) => {
            let message = "another client holds the lock, and the server rolled the transaction \
                           back when the wait was over";
            Err(Error::new(ErrorKind::Unavailable, message).with_source(db_error.source))
        }
        released => released.map(drop).map_err(failed),
    }
}

fn is_no_savepoint(db_error: &DbError) -> bool {
    mysql::number(&db_error.source) == Some(NO_SAVEPOINT)
}

/// Whole seconds. MySQL has no 0, and takes 1 where only MariaDB reads the comment.
fn limit(wait: Wait) -> String {
    match wait {
        Wait::Forever => MAX_WAIT_SECONDS.to_string(),
        Wait::AtMost(limit) if !limit.is_zero() => {
            let seconds = limit
                .saturating_add(Duration::from_nanos(999_999_999))
                .as_secs();
            seconds.clamp(1, MAX_WAIT_SECONDS).to_string()
        }
        _ => "/*M! 0 * */ 1".to_owned(),
    }
}

/// Locks the row, which is inserted if it is missing, and draws a token for it.
///
/// The insert updates an existing row. INSERT IGNORE would share the row with other waiters, and a
/// SELECT FOR UPDATE the gap for a new row: both end in a deadlock. The row of the table is read without
/// a lock, and not before the wait: with repeatable reads, a transaction reads everything as of its
/// first read.
fn take(place: &QualifiedTable, key: &LockKey, wait: Wait) -> String {
    let table = place.quoted('`', "");
    let is_admitted = server_age::is_admitted(&table);
    let draw = tokens::draw_in_transaction(&table);
    let key = literal(&key.as_bytes().into(), ServerKind::MySql);
    let first = match wait {
        Wait::Forever => String::new(),
        Wait::AtMost(limit) if !limit.is_zero() => String::new(),
        // For MySQL, whose shortest wait is 1 s. MariaDB waits for nothing below.
        _ => format!(
            "SELECT NULL FROM {table} \
             WHERE /*M! FALSE AND */ kind = {LOCKED} AND lock_key = {key} AND slot = 0 FOR UPDATE NOWAIT; "
        ),
    };
    format!(
        "{first}\
         INSERT INTO {table} (kind, lock_key, label, changed_at) \
           VALUES ({LOCKED}, {key}, '', {NOW}) \
           ON DUPLICATE KEY UPDATE kind = kind; \
         SET @polylock_layout = NULL; \
         SET @polylock_start = COALESCE(@polylock_start, {START}); \
         SELECT token INTO @polylock_layout FROM {table} WHERE kind = 0 AND lock_key = ''; \
         {draw}; \
         SELECT CAST(@polylock_token AS SIGNED), CAST(@polylock_layout AS SIGNED), {is_admitted}"
    )
}

fn raise(place: &QualifiedTable, resource: &LockKey, token: u64) -> String {
    let table = place.quoted('`', "");
    let key = literal(&resource.as_bytes().into(), ServerKind::MySql);
    format!(
        "INSERT INTO {table} (kind, lock_key, last_token, label, changed_at) \
           VALUES ({FENCE}, {key}, {token}, '', {NOW}) \
           ON DUPLICATE KEY UPDATE last_token = GREATEST(last_token, {token}), changed_at = {NOW}; \
         SELECT CAST(last_token AS SIGNED) \
           FROM {table} WHERE kind = {FENCE} AND lock_key = {key} AND slot = 0 FOR UPDATE"
    )
}

const RESTORE: &str = "SET SESSION innodb_lock_wait_timeout = @polylock_wait";

const SAVEPOINT: &str = "SAVEPOINT polylock";
const RELEASE: &str = "RELEASE SAVEPOINT polylock";

/// ER_SP_DOES_NOT_EXIST, which stands for savepoints too.
const NO_SAVEPOINT: u16 = 1305;

/// The longest wait that MariaDB takes, 3 years; MySQL takes ten times that.
const MAX_WAIT_SECONDS: u64 = 100_000_000;
