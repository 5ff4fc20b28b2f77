//! A minute of the nemesis for each backend, with one schedule, so that a failure comes from a change and
//! not from the draw; NEMESIS_SEED sets another one, and `scripts/nemesis` draws one at random.

use std::process::Command;

fn survives(backend: &str) {
    let seed = std::env::var("NEMESIS_SEED").unwrap_or_else(|_| SEED.to_owned());
    let nemesis = Command::new(env!("CARGO_BIN_EXE_nemesis"))
        .args([backend, "--minutes", "1", "--seed", &seed])
        .output()
        .expect("the nemesis starts");
    let output = [nemesis.stdout, nemesis.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(nemesis.status.success(), "{}: {output}", nemesis.status);
}

const SEED: &str = "1";

macro_rules! backends {
    ($(fn $test:ident($backend:literal);)*) => {$(
        #[test]
        fn $test() {
            survives($backend);
        }
    )*};
}

backends! {
    fn cluster_survives_a_minute_of_faults("cluster");
    fn etcd_survives_a_minute_of_faults("etcd");
    fn mariadb_advisory_survives_a_minute_of_faults("mariadb-advisory");
    fn mariadb_lease_survives_a_minute_of_faults("mariadb-lease");
    fn mariadb_row_survives_a_minute_of_faults("mariadb-row");
    fn postgres_advisory_survives_a_minute_of_faults("postgres-advisory");
    fn postgres_lease_survives_a_minute_of_faults("postgres-lease");
    fn postgres_row_survives_a_minute_of_faults("postgres-row");
    fn quorum_survives_a_minute_of_faults("quorum");
    fn redis_survives_a_minute_of_faults("redis");
    fn sentinel_survives_a_minute_of_faults("sentinel");
    fn sqlite_survives_a_minute_of_faults("sqlite");
    fn zookeeper_survives_a_minute_of_faults("zookeeper");
}
