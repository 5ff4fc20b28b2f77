//! Health checks of databases: each fault is provoked alone, and found by its name.

mod mariadb;
mod pooler;
mod postgres;
mod postgres_readers;
mod sqlite;
mod support;

use lock_testkit::servers::{MariaDbServer, PostgresServer};

use self::support::{assert_only, faults_ahead};

#[tokio::test]
async fn another_time_is_found_where_locks_go_by_it() {
    for url in [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ] {
        let found = faults_ahead(&format!("{url}?mode=lease"));
        assert_only(&found, "clock", "differs by");
        for others in ["mode=row", "mode=advisory"] {
            let found = faults_ahead(&format!("{url}?{others}"));
            assert_eq!(found, [""; 0], "{others}");
        }
    }
}
