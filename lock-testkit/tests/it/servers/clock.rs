//! Servers whose wall clock jumps and drifts; `ShiftedClock` shows a program that does.

use std::time::{Duration, Instant, UNIX_EPOCH};

use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};

#[test]
fn the_clock_of_postgres_jumps_and_drifts() {
    let server = PostgresServer::start(PostgresOptions::new().with_clock());
    let ahead = || seconds_ahead(&server.sql("SELECT extract(epoch FROM clock_timestamp())")[0][0]);
    assert_near(ahead(), 0.0);
    server.set_clock_offset(-3_600);
    assert_near(ahead(), -3_600.0);
    server.set_clock_offset(3_600);
    assert_near(ahead(), 3_600.0);
    // Ten seconds a second.
    server.set_clock_drift(10_000_000);
    let fast = Instant::now();
    while ahead() < 3_620.0 {
        assert!(
            fast.elapsed() < Duration::from_secs(20),
            "{} s ahead",
            ahead()
        );
    }
    let elapsed = fast.elapsed();
    assert!(
        elapsed > Duration::from_secs(1),
        "20 s ahead after {elapsed:?}"
    );
    server.set_clock_drift(0);
    let (there, stopped) = (ahead(), Instant::now());
    while stopped.elapsed() < Duration::from_millis(500) {
        assert_near(ahead(), there);
    }
}

#[test]
fn the_clock_of_mariadb_jumps_and_its_waits_are_as_long_as_before() {
    let server = MariaDbServer::start(MariaDbOptions::new().with_clock());
    let ahead = || seconds_ahead(&server.sql("SELECT unix_timestamp(sysdate(6))")[0][0]);
    assert_near(ahead(), 0.0);
    for offset in [3_600, -3_600] {
        server.set_clock_offset(offset);
        assert_near(ahead(), offset as f64);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| server.try_sql("SELECT get_lock('a', 0), sleep(600)"));
            let deadline = Instant::now() + Duration::from_secs(10);
            while server.sql("SELECT is_used_lock('a') IS NULL")[0][0] == "1" {
                assert!(Instant::now() < deadline, "the lock has no holder");
            }
            let asked = Instant::now();
            let rows = server.sql("SELECT get_lock('a', 1)");
            assert_eq!(rows, [["0"]]);
            let waited = asked.elapsed().as_secs_f64();
            assert!((0.9..30.0).contains(&waited), "waited {waited} s");
            server.sql("SELECT is_used_lock('a') INTO @holder; KILL @holder");
            assert!(holder.join().expect("no panic").is_err());
        });
    }
}

fn seconds_ahead(epoch: &str) -> f64 {
    let now = UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    epoch.parse::<f64>().expect("seconds") - now
}

/// A program takes its time to tell what it has seen.
fn assert_near(ahead: f64, wanted: f64) {
    assert!((wanted - 10.0..wanted + 0.5).contains(&ahead), "{ahead} s");
}
