//! Names are bytes, whatever the server takes for the same text.

use std::sync::Arc;

use lock_testkit::conformance::{keys, run};
use lock_testkit::harness::Harness;
use lock_testkit::locks::assert_error;
use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresServer};
use polylock_core::{ErrorKind, Wait};
use polylock_sql::SqlLock;

use crate::server::support::{Mode, Site, Store, request, take};

/// A server that compares text loosely, and cuts what is too long instead of refusing it.
#[test]
fn a_lax_server_tells_names_apart() {
    let options = MariaDbOptions::new()
        .with_config("sql_mode", "")
        .with_config("character_set_server", "latin1")
        .with_config("collation_server", "latin1_general_ci");
    let server = Arc::new(MariaDbServer::start(options));
    server.sql("ALTER DATABASE test CHARACTER SET latin1 COLLATE latin1_general_ci");
    for mode in [Mode::Row, Mode::Lease, Mode::Advisory] {
        let store = || {
            let site = Site::mariadb(&server, mode);
            Box::pin(async move { Arc::new(Store::new(site)) as Arc<dyn Harness> })
        };
        run(&[], store(), keys::hostile_names_do_not_share_a_lock);
        run(
            &[],
            store(),
            keys::names_that_look_alike_do_not_share_a_lock,
        );
        run(
            &[],
            store(),
            keys::the_longest_names_differ_in_their_last_byte,
        );
        run(&[], store(), keys::hostile_names_are_listed_exactly);
    }
}

/// A pooler may have several names for one database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_database_under_two_names_has_one_lock_of_a_key() {
    let (site, server) = (Site::postgres_advisory(), PostgresServer::shared());
    let pooler = PgBouncer::with_alias(&server, PoolMode::Session, "alias", &site.database);
    let url = site.url_at(pooler.port());
    let alias = url.replacen(&format!("/{}?", site.database), "/alias?", 1);
    assert_ne!(alias, url);
    let (here, there) = (site.open().await, SqlLock::open(&alias).await);
    let there = there.expect("the pooler takes it");
    let guard = take(&here, "job").await;
    let one = request("job").with_wait(Wait::Never);
    assert_error(&there, &one, ErrorKind::Contended).await;
    guard.release().await.expect("it is released");
}
