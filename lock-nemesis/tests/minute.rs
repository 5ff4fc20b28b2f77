//! A minute of the nemesis for each backend, with one schedule, so that a failure comes from a change and
//! not from the draw; NEMESIS_SEED sets another one, and `scripts/nemesis` draws one at random.

use std::process::Command;

fn survives(backend: &str) {
    let seed = std::env::var("NEMESIS_SEED").unwrap_or_else(|_| SEED.to_owned());
    let nemesis = Command::new(env!("CARGO_BIN_EXE_nemesis"))
        .args([backend, "--minutes", "1", "--seed", &seed])
        .output()
        .expect("the nemesis starts");
    assert!(
        nemesis.status.success(),
        "{}: {}{}",
        nemesis.status,
        String::from_utf8_lossy(&nemesis.stdout),
        String::from_utf8_lossy(&nemesis.stderr)
    );
}

const SEED: &str = "1";

macro_rules! backends {
    ($($test:ident: $backend:literal,)*) => {$(
        #[test]
        fn $test() {
            survives($backend);
        }
    )*};
}

backends! {
    cluster_survives_a_minute_of_faults: "cluster",
    mariadb_advisory_survives_a_minute_of_faults: "mariadb-advisory",
    mariadb_lease_survives_a_minute_of_faults: "mariadb-lease",
    mariadb_row_survives_a_minute_of_faults: "mariadb-row",
    postgres_advisory_survives_a_minute_of_faults: "postgres-advisory",
    postgres_lease_survives_a_minute_of_faults: "postgres-lease",
    postgres_row_survives_a_minute_of_faults: "postgres-row",
    quorum_survives_a_minute_of_faults: "quorum",
    redis_survives_a_minute_of_faults: "redis",
    sentinel_survives_a_minute_of_faults: "sentinel",
    sqlite_survives_a_minute_of_faults: "sqlite",
    zookeeper_survives_a_minute_of_faults: "zookeeper",
}
