//! The behavior of every store.

use std::time::Duration;

use bytes::Bytes;
use polylock_core::LockKey;
use polylock_tower::idempotency::{MemoryResponses, Put, ResponseStore, StoredResponse};

use super::support::{DAY, key, put, response};

/// Runs the test with an unused store.
async fn keeps_responses(store: &dyn ResponseStore) {
    what_is_put_is_found(store).await;
    a_second_one_is_refused_and_one_run_puts_once(store).await;
    one_of_many_is_stored(store).await;
    what_is_over_is_not_found_and_replaced(store).await;
    many_come_and_go(store).await;
}

async fn what_is_put_is_found(store: &dyn ResponseStore) {
    for (name, body) in [
        ("text", Some(Bytes::from_static(b"paid"))),
        ("empty", Some(Bytes::new())),
        ("binary", Some((0..=255).collect())),
        ("large", Some(vec![7; 1 << 20].into())),
        ("none", None),
        ("caf\u{e9}/\u{1f512} ' \" ; -- `", Some(Bytes::new())),
    ] {
        let (key, response) = (key(name), response(1, body));
        assert_eq!(get(store, &key).await, None, "{name}");
        assert_eq!(put(store, &key, &response, Some(1), DAY).await, Put::Stored);
        assert_eq!(get(store, &key).await, Some(response), "{name}");
    }
    let long = key(&"k".repeat(LockKey::MAX_LEN));
    assert_eq!(put(store, &long, &text(1), None, DAY).await, Put::Stored);
    assert_eq!(get(store, &long).await, Some(text(1)));
    assert_eq!(get(store, &key("TEXT")).await, None);
}

/// Whatever the token: two lock services give the same ones.
async fn a_second_one_is_refused_and_one_run_puts_once(store: &dyn ResponseStore) {
    for (name, tokens) in [
        ("second", [Some(5), Some(4), Some(6)]),
        ("tokenless", [None; 3]),
    ] {
        let key = key(name);
        for (number, then) in [(1, Put::Stored), (1, Put::Stored), (2, Put::Refused)] {
            for token in tokens {
                assert_eq!(put(store, &key, &text(number), token, DAY).await, then);
            }
        }
        assert_eq!(get(store, &key).await, Some(text(1)));
    }
}

async fn one_of_many_is_stored(store: &dyn ResponseStore) {
    let key = key("many");
    let puts = (1..=20).map(async |number: u8| {
        let stored = put(store, &key, &text(number), Some(number.into()), DAY).await;
        (number, stored)
    });
    let mut puts = futures_util::future::join_all(puts).await;
    puts.retain(|(_, put)| *put == Put::Stored);
    let [(winner, _)] = puts[..] else {
        panic!("{puts:?}")
    };
    assert_eq!(get(store, &key).await, Some(text(winner)));
}

async fn what_is_over_is_not_found_and_replaced(store: &dyn ResponseStore) {
    let key = key("over");
    put_over(store, &key, 9).await;
    // Its token is over with it: a lock service that lost its tokens begins with small ones.
    assert_eq!(put(store, &key, &text(2), Some(3), DAY).await, Put::Stored);
    assert_eq!(get(store, &key).await, Some(text(2)));
}

/// More than are put between two purges.
async fn many_come_and_go(store: &dyn ResponseStore) {
    for number in 0..100 {
        put_over(store, &key(&format!("gone/{number}")), 1).await;
    }
}

async fn get(store: &dyn ResponseStore, key: &LockKey) -> Option<StoredResponse> {
    store.get(key).await.expect("the store works")
}

/// Puts a response that is over at once, and waits until that shows.
async fn put_over(store: &dyn ResponseStore, key: &LockKey, token: u64) {
    let put = put(store, key, &text(1), Some(token), Duration::ZERO).await;
    assert_eq!(put, Put::Stored);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while get(store, key).await.is_some() {
        assert!(tokio::time::Instant::now() < deadline, "{key} never ends");
    }
}

fn text(number: u8) -> StoredResponse {
    response(number, Some(Bytes::from(format!("charge {number}"))))
}

#[tokio::test]
async fn memory() {
    keeps_responses(&MemoryResponses::new()).await;
}

#[cfg(feature = "redis")]
mod redis {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use lock_testkit::proxy::{Direction, Proxy};
    use lock_testkit::servers::{RedisOptions, RedisServer, Reply};
    use polylock_tower::Locker;
    use polylock_tower::idempotency::{IdempotencyLayer, KeyScope, RedisResponses};

    use super::*;
    use crate::idempotency::support::{Payments, post};
    use crate::support::{connect, send, until};

    #[tokio::test]
    async fn redis() {
        let server = RedisServer::start(RedisOptions::new());
        let store = RedisResponses::connect(&server.url()).await.unwrap();
        keeps_responses(&store).await;
        assert_eq!(format!("{store:?}"), "RedisResponses { .. }");
    }

    #[tokio::test]
    async fn a_broken_connection_is_replaced() {
        let server = RedisServer::start(RedisOptions::new());
        let store = RedisResponses::connect(&server.url()).await.unwrap();
        let key = key("a");
        assert_eq!(put(&store, &key, &text(1), None, DAY).await, Put::Stored);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert_eq!(get(&store, &key).await, Some(text(1)));
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert_eq!(put(&store, &key, &text(2), None, DAY).await, Put::Refused);
    }

    #[tokio::test]
    async fn a_response_whose_connection_breaks_before_the_reply_is_stored_once() {
        let server = RedisServer::start(RedisOptions::new());
        let proxy = Proxy::start(server.port());
        let store = RedisResponses::connect(&proxy.url()).await.unwrap();
        let (key, response) = (key("a"), text(1));
        let sets = proxy.watch(|command| command.is("SET"));
        proxy.hold(Direction::Replies);
        let put = store.put(&key, &response, None, DAY);
        let cut = async {
            until("the response is stored", || {
                matches!(server.command(&["DBSIZE"]), Reply::Integer(1))
            })
            .await;
            proxy.cut();
            proxy.clear();
        };
        let (put, ()) = futures_util::future::join(put, cut).await;
        assert_eq!(put.unwrap(), Put::Stored);
        assert_eq!(sets.count(), 2, "the second finds the first");
        assert_eq!(get(&store, &key).await, Some(response));
    }

    #[tokio::test]
    async fn a_connection_without_answers_is_replaced() {
        let server = RedisServer::start(RedisOptions::new());
        let proxy = Proxy::start(server.port());
        let store = RedisResponses::connect(&proxy.url()).await.unwrap();
        let key = key("a");
        assert_eq!(put(&store, &key, &text(1), None, DAY).await, Put::Stored);
        let connections = proxy.connections();
        proxy.hold(Direction::Replies);
        let given_up = tokio::time::timeout(Duration::from_millis(300), store.get(&key)).await;
        assert!(given_up.is_err(), "{given_up:?}");
        proxy.resume(Direction::Replies);
        assert_eq!(get(&store, &key).await, Some(text(1)));
        assert_eq!(proxy.connections(), connections + 1);
    }

    #[tokio::test]
    async fn a_late_refusal_of_a_former_connection_leaves_the_current_one() {
        let server = RedisServer::start(RedisOptions::new());
        let proxy = Proxy::start(server.port());
        let store = RedisResponses::connect(&proxy.url()).await.unwrap();
        let connections = proxy.connections();
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let (late_key, key, response) = (key("late"), key("a"), text(1));
        let mut late = store.put(&late_key, &response, None, DAY);
        // Sends the command; its reply is not read before the next poll.
        let replied = (&mut late).now_or_never();
        assert!(replied.is_none(), "{replied:?}");
        let refused = store.put(&key, &response, None, DAY).await;
        assert!(refused.is_err(), "{refused:?}");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        let again = put(&store, &key, &response, None, DAY).await;
        assert_eq!(again, Put::Stored);
        let late = late.await;
        assert!(late.is_err(), "{late:?}");
        assert_eq!(get(&store, &key).await, Some(response));
        assert_eq!(proxy.connections(), connections + 1);
    }

    /// Each request would be handled again.
    #[tokio::test]
    async fn a_redis_that_takes_no_responses_or_not_all_is_refused() {
        let server = RedisServer::start(RedisOptions::new());
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let cluster = RedisOptions::new().with_config("cluster-enabled", "yes");
        let node = RedisServer::start(cluster);
        for (server, what) in [(server, "a replica"), (node, "a node of a cluster")] {
            let opened = RedisResponses::connect(&server.url()).await;
            let refused = opened.expect_err("it is refused").to_string();
            assert_eq!(refused, format!("the Redis of the responses is {what}"));
        }
    }

    /// As on staging and in production, which share a server.
    #[tokio::test]
    async fn lock_services_with_different_namespaces_share_no_responses() {
        let server = RedisServer::start(RedisOptions::new());
        let store = RedisResponses::connect(&server.url()).await.unwrap();
        let payments = Payments::default();
        for (namespace, charge) in [("staging", "charge 1"), ("production", "charge 2")] {
            let locks = connect(&format!("memory:?namespace={namespace}")).await;
            let locker = Locker::builder(locks, "pay").build().unwrap();
            let store = Arc::new(store.clone().with_namespace(namespace).unwrap());
            let layer = IdempotencyLayer::new(locker, store, KeyScope::shared()).unwrap();
            let service = payments.behind(&layer);
            for is_replayed in [false, true] {
                let seen = send(&service, post("a")).await;
                assert_eq!((&seen.body[..], seen.is_replayed()), (charge, is_replayed));
            }
        }
        assert_eq!(get(&store, &key("pay:/a")).await, None);
        for namespace in ["", "a:b", "a\n", &"n".repeat(65)] {
            let refused = store.clone().with_namespace(namespace);
            assert!(refused.is_err(), "{namespace:?}");
        }
    }

    #[tokio::test]
    async fn parameters_that_redis_does_not_know_are_refused() {
        for (url, message) in [
            ("redis://127.0.0.1:1/?namespace=bank", "`with_namespace`"),
            (
                "redis://127.0.0.1:1/?protocol=resp3&db=3",
                "no parameter `db`",
            ),
            ("unix:///absent?db=3&ttl=30s", "no parameter `ttl`"),
            ("redis://me:1?geheim=@127.0.0.1", "an unknown parameter"),
        ] {
            let error = RedisResponses::connect(url).await.unwrap_err().to_string();
            assert!(error.ends_with(message), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_no_redis_is_refused_without_its_password() {
        for url in ["", "sqlite:x.db", "redis://me:geheim@127.0.0.1:1"] {
            let error = RedisResponses::connect(url).await.unwrap_err();
            assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
        }
    }
}

#[cfg(feature = "_sql")]
mod sql {
    use polylock_tower::idempotency::SqlResponses;

    use super::*;

    async fn keeps_responses_at(url: &str) {
        let stores = futures_util::future::join_all((0..8).map(|_| SqlResponses::connect(url)));
        let stores: Result<Vec<_>, _> = stores.await.into_iter().collect();
        let stores = stores.expect("all of them make the table at once");
        keeps_responses(&stores[0]).await;
        let paid = response(1, Some(Bytes::from_static(b"paid")));
        assert_eq!(get(&stores[7], &key("text")).await, Some(paid));
        let other = SqlResponses::connect_table(url, "other_responses").await;
        let other = other.expect("it makes another");
        assert_eq!(get(&other, &key("text")).await, None);
        let text = format!("{:?}", stores[0]);
        let names_table_alone = !text.contains(url) && text.contains("polylock_responses");
        assert!(names_table_alone, "{text}");
    }

    #[cfg(feature = "sqlite")]
    fn sqlite_url() -> (String, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("responses.db");
        (format!("sqlite:{}", file.display()), directory)
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let (url, _directory) = sqlite_url();
        keeps_responses_at(&url).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_is_created_unless_the_url_has_a_mode() {
        let (url, _directory) = sqlite_url();
        let existing = format!("{url}?mode=rw");
        assert!(SqlResponses::connect(&existing).await.is_err());
        for url in [&url, &existing] {
            let store = SqlResponses::connect(url).await.unwrap();
            assert_eq!(get(&store, &key("a")).await, None);
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let server = lock_testkit::servers::PostgresServer::shared();
        keeps_responses_at(&server.database()).await;
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn mariadb() {
        let server = lock_testkit::servers::MariaDbServer::shared();
        keeps_responses_at(&server.database()).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn what_is_over_is_deleted_in_passing() {
        let (url, _directory) = sqlite_url();
        let store = SqlResponses::connect(&url).await.unwrap();
        many_come_and_go(&store).await;
        let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url)
            .await
            .unwrap();
        // No put waits for the last purge.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM polylock_responses");
            let left = count.fetch_one(&mut connection).await.unwrap();
            if left < 32 {
                break;
            }
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(!is_late, "{left} of 100 are left");
        }
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn a_user_without_the_right_to_create_uses_the_existing_table() {
        let server = lock_testkit::servers::PostgresServer::shared();
        let url = server.database();
        let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&url)
            .await
            .unwrap();
        let dialect = polylock_tower::idempotency::SqlDialect::Postgres;
        let sql = SqlResponses::create_table_sql(dialect, "mine").unwrap();
        // Nobody may create a table in the first schema.
        let sql = sql + "; ALTER DATABASE CURRENT_DATABASE_ SET search_path = pg_catalog, public";
        let name = url.rsplit('/').next().unwrap();
        let sql = sql.replace("CURRENT_DATABASE_", name);
        sqlx::Executor::execute(&mut admin, sqlx::raw_sql(sqlx::AssertSqlSafe(sql)))
            .await
            .unwrap();
        let store = SqlResponses::connect_table(&url, "mine").await.unwrap();
        assert_eq!(store.get(&key("a")).await.unwrap(), None);
        let error = SqlResponses::connect(&url).await.unwrap_err();
        let absent = "the table of the responses is not there, or has other columns";
        assert_eq!(error.to_string(), absent);
    }

    /// The database's default makes new sessions read-only, like those of a replica.
    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn the_connection_to_a_server_that_refuses_writes_is_replaced() {
        let url = lock_testkit::servers::PostgresServer::shared().database();
        let store = SqlResponses::connect(&url).await.unwrap();
        let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&url)
            .await
            .unwrap();
        let name = url.rsplit('/').next().unwrap();
        let mut alter = async |change: &str| {
            let sql = format!(
                "ALTER DATABASE {name} {change};
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = '{name}' AND pid <> pg_backend_pid()"
            );
            let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
            sqlx::Executor::execute(&mut admin, sql).await.unwrap();
        };
        alter("SET default_transaction_read_only = on").await;
        let refused = store.put(&key("a"), &text(1), None, DAY).await;
        assert!(refused.is_err(), "{refused:?}");
        let opened = SqlResponses::connect(&url).await;
        let refused = opened.expect_err("each request would be handled again");
        assert_eq!(refused.to_string(), "a response cannot be written");
        alter("RESET default_transaction_read_only").await;
        let mut again = store.put(&key("a"), &text(1), None, DAY).await;
        if again.is_err() {
            // The pool may have opened a second connection before the change.
            again = store.put(&key("a"), &text(1), None, DAY).await;
        }
        assert_eq!(again.unwrap(), Put::Stored);
    }

    #[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[tokio::test]
    async fn parameters_that_sqlx_does_not_know_are_refused() {
        for (url, message) in [
            ("mysql://127.0.0.1:1/x?namespace=bank", "`connect_table`"),
            ("sqlite:/absent/x.db?namespace=bank", "`connect_table`"),
            (
                "mariadb://127.0.0.1:1/x?ssl-mode=disabled&table=geheim",
                "no parameter `table`",
            ),
            (
                "postgres://127.0.0.1:1/x?options[search_path]=shop&tls=geheim",
                "no parameter `tls`",
            ),
            (
                "postgres://127.0.0.1:1/x?options[a=geheim",
                "no parameter `options[a`",
            ),
            ("postgres://me:1?geheim=@127.0.0.1", "an unknown parameter"),
        ] {
            let error = SqlResponses::connect(url).await.unwrap_err();
            assert!(error.to_string().ends_with(message), "{error}");
            assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
        }
    }

    /// A response that one connection has stored would not be found by the others.
    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_sqlite_that_connections_do_not_share_is_refused() {
        for url in [
            "sqlite:",
            "sqlite://",
            "sqlite://?mode=rwc",
            "sqlite:?cache=shared",
            "sqlite::memory:",
            "sqlite:%3Amemory%3A",
            "sqlite:file::memory:?cache=shared",
            "sqlite:file:x.db%3Fmode=memory",
            "sqlite:file:x.db%3Fvfs=memdb",
            "sqlite:x.db?mode=memory",
            "sqlite:x.db?mode=%6demory",
            "sqlite:x.db?m%6fde=memory",
            "sqlite:x.db?vfs=memdb",
            "sqlite:/x.db?%76fs=memdb",
        ] {
            assert!(SqlResponses::connect(url).await.is_err(), "{url}");
        }
        let directory = tempfile::tempdir().unwrap();
        for name in ["ok.db", "shared.db?cache=shared", "q%3F.db", ":memory:.db"] {
            let url = format!("sqlite:{}/{name}", directory.path().display());
            let store = SqlResponses::connect(&url).await.unwrap();
            let put = put(&store, &key("a"), &text(1), None, DAY).await;
            assert_eq!(put, Put::Stored, "{url}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn what_is_no_database_or_no_name_is_refused() {
        for url in [
            "",
            "redis://h",
            "sqlite::memory:",
            "sqlite:x.db?mode=memory",
            "postgres",
        ] {
            let error = SqlResponses::connect(url).await.unwrap_err();
            assert!(!error.to_string().is_empty(), "{url}");
        }
        let password = "postgres://me:geheim@127.0.0.1:1/x";
        let error = SqlResponses::connect(password).await.unwrap_err();
        assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
        let dialect = polylock_tower::idempotency::SqlDialect::Sqlite;
        assert!(SqlResponses::create_table_sql(dialect, "a b").is_err());
    }
}
