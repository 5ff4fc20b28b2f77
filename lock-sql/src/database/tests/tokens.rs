use std::time::{Duration, Instant};

use lock_testkit::servers::{MariaDbOptions, MariaDbServer};
use polylock_core::engine::LeaseId;
use polylock_core::{LeaseState, Mode, Released, RenewalRequest, Renewer as _};

use super::locked::begin;
use super::{ALONE, Client, TTL, databases, id, key};
use crate::dialect::mysql::tokens;
use crate::store::LeaseStore as _;
use crate::table::SqlClaim;
use crate::table::testing::claim;

#[tokio::test]
async fn only_a_holder_reserves_tokens_and_no_other_client_gets_them() {
    for url in databases() {
        let (here, there) = (Client::open(&url, "").await, Client::open(&url, "").await);
        let first = here.take("k", 1, ALONE).await.unwrap();
        assert_eq!(first.last - first.next, 63);
        let more = here.store.reserve(&key("k"), id(1)).await.unwrap().unwrap();
        assert!(more.next > first.last && more.last - more.next == 63);
        assert_eq!(there.store.reserve(&key("k"), id(2)).await.unwrap(), None);
        assert_eq!(here.release("k", 1).await, Released::Clean);
        let second = there.take("k", 2, ALONE).await.unwrap();
        assert!(second.next > more.last);
    }
}

/// Counted by a server with no other client.
#[tokio::test]
async fn the_usual_is_one_statement_and_hundreds_of_renewals_are_few() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    let client = Client::open(&server.url(), "").await;
    // A round of it has statements of its own.
    client.store.purge.suspend();
    let questions = || -> u64 {
        // Connections that are opened have settings, and no statements of these kinds.
        let rows = server.sql(
            "SHOW GLOBAL STATUS WHERE Variable_name IN \
             ('Com_insert_select', 'Com_select', 'Com_update', 'Com_update_multi')",
        );
        let count = |row: &Vec<String>| -> u64 { row[1].parse().expect("a number") };
        rows.iter().map(count).sum()
    };
    let begin = questions();
    let asking = questions() - begin;
    let id = |n: u32| LeaseId::from_bytes(u128::from(n).to_be_bytes());
    let take = async |name: String, n, mode| {
        let claim = SqlClaim {
            id: id(n),
            // A busy machine takes its time for hundreds of locks.
            ttl: TTL * 20,
            // It does not wait.
            ..claim(2, mode)
        };
        client.store.take(&key(&name), claim).await.unwrap()
    };
    let release = async |n| {
        let released = client.store.release(&key("k"), id(n)).await;
        assert_eq!(released.unwrap(), Released::Clean);
    };
    let use_it = async || {
        take("k".to_owned(), 2, ALONE).await.unwrap();
        client.store.reserve(&key("k"), id(2)).await.unwrap();
        release(2).await;
    };
    assert_eq!(second_count(&questions, &use_it).await - asking, 3);
    take("k".to_owned(), 3, ALONE).await.unwrap();
    let ask = async || {
        take("k".to_owned(), 4, ALONE).await.unwrap_err();
    };
    assert_eq!(second_count(&questions, &ask).await - asking, 2);
    for mode in [ALONE, Mode::Shared] {
        let mut due = Vec::new();
        for n in 0..300 {
            let name = format!("{mode:?} {n}");
            due.push(RenewalRequest::new(key(&name), id(n), TTL * 20));
            take(name, n, mode).await.unwrap();
        }
        // The connections of renewals.
        client.store.renew(&due).await;
        let renew = async || {
            for state in client.store.renew(&due).await {
                assert_eq!(state.unwrap(), LeaseState::Held);
            }
        };
        let asked = second_count(&questions, &renew).await - asking;
        assert_eq!(asked, 2, "{mode:?}");
    }
}

/// What is asked for the second of two uses: the first one makes rows and opens connections. A connection
/// that was idle for a second is asked whether it is alive, so uses that take so long are repeated.
#[expect(clippy::future_not_send, reason = "it stays on the thread of its test")]
async fn second_count(questions: &impl Fn() -> u64, uses: &impl AsyncFn()) -> u64 {
    let mut asked = 0;
    for _ in 0..20 {
        let began = Instant::now();
        uses().await;
        let before = questions();
        uses().await;
        let is_quick = began.elapsed() < Duration::from_millis(900);
        asked = questions() - before;
        if is_quick {
            break;
        }
    }
    asked
}

/// As MySQL reads the text of a statement.
fn as_of_mysql(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (comment, rest) = part.split_once("*/").expect("a comment ends");
        text + comment.strip_prefix("!80000").unwrap_or_default() + rest
    })
}

/// MariaDB draws its tokens from a sequence, and its rollbacks leave no lock on a gap: with MySQL in its place, this
/// shows more.
#[tokio::test]
async fn a_transaction_on_mysql_keeps_no_other_from_drawing_a_token() {
    let url = MariaDbServer::shared().database();
    let client = Client::open(&url, "").await;
    client
        .sql("CREATE TABLE other_token (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB")
        .await;
    client
        .sql("CREATE TABLE written (n INT) ENGINE = InnoDB")
        .await;
    let draw = as_of_mysql(&tokens::draw_in_transaction("`other`"));
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let draw = format!(
            "COMMIT; SET SESSION TRANSACTION ISOLATION LEVEL {isolation}; BEGIN; \
             INSERT INTO written VALUES (1); {draw}"
        );
        let (one, other) = (begin(&url, &draw).await, begin(&url, &draw).await);
        let mut last = 0;
        for it in [&one, &other] {
            let now = it.number("SELECT CAST(@polylock_now AS SIGNED)").await;
            let token = it.number("SELECT CAST(@polylock_token AS SIGNED)").await;
            assert!(token > now && token > last, "{token} at {now} after {last}");
            last = token;
        }
        one.sql("COMMIT").await;
        other.sql("COMMIT").await;
        assert_eq!(client.number("SELECT COUNT(*) FROM other_token").await, 0);
    }
}
