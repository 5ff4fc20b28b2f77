use std::collections::BTreeSet;

use clap::Parser as _;
use lock_testkit::servers::PostgresServer;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sells_each_piece_once_on_sqlite() {
    check(&Args::parse_from(["flash_sale"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sells_each_piece_once_on_postgres() {
    let database = PostgresServer::shared().database();
    let args = [
        "flash_sale",
        "--backend",
        "memory:flash-sale",
        "--database",
        &database,
        "--buyers=120",
        "--pieces=40",
        "--clients=24",
    ];
    check(&Args::parse_from(args)).await;
}

#[tokio::test]
async fn a_sale_without_a_crowd_shows_nothing() {
    let args = Args::parse_from(["flash_sale", "--buyers", "100", "--pieces", "100"]);
    let refused = sale(&args).await.unwrap_err();
    assert!(refused.to_string().contains("every second buyer"));
}

async fn check(args: &Args) {
    let report = sale(args).await.unwrap();
    assert_eq!(report.broken_claims(), Vec::<String>::new(), "{report}");
    assert_eq!(report.runs.len(), Mode::ALL.len());
    let pieces = i64::from(args.pieces);
    // Every tenth buyer asks twice.
    let requests = (args.buyers + args.buyers / 10) as usize;
    let mut numbers = BTreeSet::new();
    for run in &report.runs {
        let mode = run.mode;
        let (sold, left) = (run.books.orders, run.books.left);
        if mode == Mode::None {
            assert!(sold > pieces, "{mode:?} sold {sold}");
        } else {
            assert_eq!((sold, left), (pieces, 0), "{mode:?}");
        }
        let ids: Vec<_> = run.answers.orders.values().flatten().collect();
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(
            (ids.len(), distinct.len()),
            (sold as usize, sold as usize),
            "{mode:?}"
        );
        let of_instance = |id: &&String| id.split('-').next().map(str::to_owned);
        let drawn: BTreeSet<_> = ids.iter().filter_map(of_instance).collect();
        // Instances that start later have other numbers.
        assert!((1..=3).contains(&drawn.len()), "{drawn:?}");
        assert!(numbers.is_disjoint(&drawn), "{numbers:?} {drawn:?}");
        numbers.extend(drawn);

        let answers = &run.answers;
        assert_eq!(
            (answers.requests, answers.turned_away),
            (requests, 0),
            "{mode:?}"
        );
        assert_eq!(
            answers.new + answers.again + answers.sold_out,
            requests,
            "{mode:?}"
        );
        assert_eq!(run.buyers_with_two_orders(), 0, "{mode:?}");
        assert_eq!(
            run.retries > 0,
            mode == Mode::Optimistic,
            "{mode:?}: {}",
            run.retries
        );
    }
    let [lock, fencing] = &report.late;
    assert_eq!((lock.books.orders, lock.books.left), (2, 9));
    assert!(lock.refused.is_none());
    assert_eq!((fencing.books.orders, fencing.books.left), (1, 9));
    let stale = fencing.refused.as_ref().expect("the late write is refused");
    assert!(Some(stale.token) < stale.newest, "{stale}");
}
