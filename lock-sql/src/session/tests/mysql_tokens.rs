//! Tokens that MySQL, which has no sequence, draws from a table.

use super::*;

/// A client that opens a session inserts a row with the number of the clock, and must not wait for a holder
/// that has drawn it. MariaDB has the same storage engine as MySQL.
#[tokio::test]
async fn a_row_lock_on_mysql_keeps_no_token_locked() {
    let url = format!("{}?mode=row", MariaDbServer::shared().database());
    let here = open(&url).await;
    let table = "`of_mysql`";
    let counter = sequence(table);
    let create = format!(
        "CREATE TABLE {table} LIKE polylock_locks;
         INSERT INTO {table} (kind, lock_key) VALUES (2, {{1}});
         CREATE TABLE {counter} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB"
    );
    let key = LockKey::new("k").unwrap();
    run(&here, &create, here.context.args(&key)).await;
    let mut actor = actor::connect(&here.pool).await.unwrap();
    let SqlSessions { context, .. } = open(&url).await;
    let mut context = Arc::into_inner(context).expect("no session has it");
    let sessions = dialect::mysql::session::name_prefix(&context.scope);
    context.statements = dialect::mysql::session::row(table, &sessions, Flavor::MySql);
    actor.context = Arc::new(context);
    let Ok(SessionReply::Granted(grant, _hold)) = take(&mut actor, &here, Wait::Never, None).await
    else {
        panic!("it is free");
    };
    let token = grant.token.expect("it has one").value();
    let args = actor.args(&key, LeaseId::from_bytes([1; 16]));
    let drawn = actor.ask(|it| &it.draw, &args).await.unwrap();
    let block: Vec<_> = drawn.rows.iter().filter(|row| row.len() == 2).collect();
    let [first, last] = [0, 1].map(|at| block[0][at].int().unwrap());
    assert_eq!(i64::try_from(token).unwrap() + 1, first);
    assert_eq!(last - first + 1, i64::try_from(TOKENS_AT_ONCE).unwrap());
    let insert = format!("INSERT INTO {counter} (id) VALUES ({token}), ({first}), ({last})");
    run(&here, &insert, Args::new()).await;
}
