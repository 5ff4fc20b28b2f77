//! Health checks of databases: each fault is provoked alone, and found by its name.

mod mariadb;
mod pooler;
mod postgres;
mod postgres_readers;
mod sqlite;
mod support;

use lock_testkit::servers::{
    DatabaseServer, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer,
};

use self::support::{assert_only, faults};

#[tokio::test]
async fn another_time_is_found_where_locks_go_by_it() {
    let postgres = PostgresServer::start(PostgresOptions::new().with_clock());
    let mariadb = MariaDbServer::start(MariaDbOptions::new().with_clock());
    let servers: [&DatabaseServer; 2] = [&postgres, &mariadb];
    for server in servers {
        let faults_in = async |mode: &str| faults(&format!("{}?mode={mode}", server.url())).await;
        for seconds in [3, -3] {
            server.set_clock_offset(seconds);
            assert_only(&faults_in("lease").await, "clock", "differs by");
            for mode in ["row", "advisory"] {
                assert_eq!(faults_in(mode).await, [""; 0], "{seconds} s, {mode}");
            }
        }
    }
}
