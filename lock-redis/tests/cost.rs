//! What a contended lock costs the server.

use std::collections::BTreeMap;

use crate::support::{Place, SOON, TTL, granted, release, request, take, waiting, within};

/// The commands that the server has run since the last reset, inside of scripts as well.
fn commands(place: &Place) -> BTreeMap<String, u64> {
    let stats = place.command(&["INFO", "commandstats"]).text();
    let of_test = ["config|resetstat", "exists", "type", "xlen"];
    let stats = stats.expect("a text");
    let rows = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        Some((name.to_owned(), calls.parse().expect("a number")))
    });
    let rows = rows.filter(|(name, _)| !of_test.contains(&name.as_str()));
    rows.collect()
}

#[tokio::test]
async fn a_contended_acquisition_and_its_release_cost_eight_commands() {
    let place = Place::new().await;
    let clients = [place.elsewhere().await, place.elsewhere().await];
    let one = || within(request("a").with_ttl(30 * TTL), SOON);
    let mut guard = take(&clients[1], "a").await;
    let mut least: Option<BTreeMap<String, u64>> = None;
    for round in 0..20 {
        place.command(&["CONFIG", "RESETSTAT"]);
        let next = waiting(&clients[round % 2], one());
        place.queued("a", 1).await;
        release(guard).await;
        guard = granted(next).await;
        // A renewal or a heartbeat may fall into the same moment.
        let now = commands(&place);
        let sum = |all: &BTreeMap<String, u64>| all.values().sum::<u64>();
        if least.as_ref().is_none_or(|least| sum(&now) < sum(least)) {
            least = Some(now);
        }
    }
    release(guard).await;
    let expected = [
        ("evalsha", 1),
        ("get", 1),
        ("publish", 1),
        ("set", 1),
        ("xadd", 2),
        ("xdel", 1),
        ("xrange", 1),
    ];
    let expected = expected.map(|(name, calls)| (name.to_owned(), calls));
    assert_eq!(least, Some(BTreeMap::from(expected)));
    place
        .assert_nothing_left(&[&clients[0], &clients[1]], "a")
        .await;
}
