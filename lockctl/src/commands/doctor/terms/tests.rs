use polylock::Verdict;

use super::*;
use crate::commands::doctor::round_trip::Quantiles;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn measured(p90: u64) -> RoundTrips {
    let quantiles = Quantiles {
        count: 100,
        p50: millis(p90 / 2),
        p90: millis(p90),
        p99: millis(p90 * 9),
    };
    RoundTrips {
        cycle: quantiles,
        refused: quantiles,
    }
}

fn ttl(ttl: Duration) -> Asked {
    Asked {
        ttl,
        session_timeout: Duration::ZERO,
    }
}

fn session(session_timeout: Duration) -> Asked {
    Asked {
        ttl: Duration::ZERO,
        session_timeout,
    }
}

#[test]
fn the_shortest_lease_has_room_for_its_renewals_and_a_shorter_one_has_not() {
    for slow in [1, 100, 499, 500, 501, 800, 1000, 2499, 2500] {
        let least = least(millis(slow)).unwrap();
        assert!(attempt(least) >= millis(slow) * ROOM, "{slow}");
        let shorter = least - Duration::from_secs(1);
        assert!(
            least == SHORTEST || attempt(shorter) < millis(slow) * ROOM,
            "{slow}"
        );
    }
    assert_eq!(least(millis(2501)), None);
}

#[test]
fn a_close_server_is_recommended_the_usual_lease() {
    let round_trips = measured(2);
    let advice = Advice::of(&round_trips, LockLifetime::Lease);
    assert_eq!(advice.recommended, Some(USUAL));
    assert_eq!(advice.least, Some(SHORTEST));
    assert_eq!(
        advice.finding(ttl(USUAL), &round_trips).verdict,
        Verdict::Good
    );
    assert!(
        advice
            .text()
            .starts_with("recommended ttl: 30s, renewed every 10s; at least 5s. ")
    );
}

#[test]
fn a_lease_that_is_too_short_for_the_link_is_a_warning() {
    let round_trips = measured(800);
    let advice = Advice::of(&round_trips, LockLifetime::Lease);
    assert_eq!(advice.recommended, Some(Duration::from_secs(48)));
    let found = advice.finding(ttl(USUAL), &round_trips);
    assert_eq!(found.verdict, Verdict::Warning);
    assert!(
        found
            .why
            .starts_with("a renewal of a lease of 30s is given 1s"),
        "{found}"
    );
    assert!(found.way_out.starts_with("use a ttl of 48s"), "{found}");
    let longer = advice.finding(ttl(Duration::from_secs(48)), &round_trips);
    assert_eq!(longer.verdict, Verdict::Good);
}

#[test]
fn a_link_that_is_too_slow_has_no_lease() {
    let round_trips = measured(4000);
    let advice = Advice::of(&round_trips, LockLifetime::Lease);
    assert_eq!(advice.recommended, None);
    let found = advice.finding(ttl(Duration::from_secs(600)), &round_trips);
    assert!(found.way_out.contains("no ttl"), "{found}");
}

#[test]
fn a_lock_that_lives_with_its_connection_has_no_lease() {
    let round_trips = measured(4000);
    let advice = Advice::of(&round_trips, LockLifetime::Connection);
    let found = advice.finding(ttl(Duration::from_secs(1)), &round_trips);
    assert_eq!(found.verdict, Verdict::Good, "{found}");
    assert_eq!(
        (advice.least, advice.recommended, advice.renewal()),
        (None, None, None)
    );
    let text = advice.text();
    assert_eq!(
        text,
        "no ttl is recommended: locks live with the connection"
    );
}

#[test]
fn a_lock_that_lives_with_its_session_is_judged_for_that() {
    for (slow, timeout, verdict, recommended) in [
        (1, 1, Verdict::Good, 20),
        (499, 4, Verdict::Good, 20),
        (600, 4, Verdict::Warning, 20),
        (2500, 20, Verdict::Good, 20),
        (2501, 20, Verdict::Warning, 21),
        (4000, 32, Verdict::Good, 32),
    ] {
        let round_trips = measured(slow);
        let advice = Advice::of(&round_trips, LockLifetime::Session);
        let found = advice.finding(session(Duration::from_secs(timeout)), &round_trips);
        assert_eq!(found.verdict, verdict, "{slow} {found}");
        let recommended = Duration::from_secs(recommended);
        assert_eq!(advice.recommended, Some(recommended), "{slow}");
        let longer = advice.finding(session(recommended), &round_trips);
        assert_eq!(longer.verdict, Verdict::Good, "{slow} {longer}");
    }
    let round_trips = measured(2501);
    let advice = Advice::of(&round_trips, LockLifetime::Session);
    let found = advice.finding(session(Duration::from_secs(20)), &round_trips);
    assert!(
        found.why.contains("time-out of 20s has 2.50s, less"),
        "{found}"
    );
    assert!(
        found.way_out.starts_with("use session-timeout=21s,"),
        "{found}"
    );
    assert_eq!(
        (advice.least, advice.renewal()),
        (Some(Duration::from_secs(21)), None)
    );
    let text = advice.text();
    assert!(
        text.starts_with("recommended session-timeout: 21s; at least 21s. "),
        "{text}"
    );
}

#[test]
fn short_times_keep_their_digits() {
    for (micros, text) in [
        (42, "0.042ms"),
        (1234, "1.23ms"),
        (12_340, "12.3ms"),
        (250_000, "250ms"),
    ] {
        assert_eq!(exact(Duration::from_micros(micros)), text);
    }
}
