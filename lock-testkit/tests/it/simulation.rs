//! A thousand simulated histories in ten tests, so that they run beside each other.
//!
//! `SIM_START` sets the first seed (default 0) and `SIM_HISTORIES` the number of histories (default
//! 1,000). A history that went wrong is replayed, with every event, by
//! `SIM_SEED=n cargo test -p lock-testkit --test it simulation::replay -- --nocapture`.

use lock_testkit::sim::{SimFault, Simulation, Tally};

/// Runs a tenth of the histories.
#[expect(clippy::print_stdout, reason = "the figures of the run")]
fn tenth(number: u64) {
    let histories = from_environment("SIM_HISTORIES", 1000).div_ceil(10);
    let first = from_environment("SIM_START", 0) + number * histories;
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for seed in first..first + histories {
        let outcome = Simulation::new(seed).run();
        tally.add(&outcome.tally);
        wrong.extend(
            outcome.violations.iter().map(|violation| {
                format!("\nseed {seed}: {violation}, replay with SIM_SEED={seed}")
            }),
        );
    }
    println!("seeds {first} to {}: {tally:?}", first + histories - 1);
    assert!(
        wrong.is_empty(),
        "{} violations:{}",
        wrong.len(),
        wrong.concat()
    );
    for fault in FAULTS {
        let injected = tally.faults.contains_key(&fault);
        assert!(injected, "the faults were asleep: no {fault:?}");
    }
    assert!(
        tally.leases_lost > 0,
        "the faults were asleep: no lease was lost"
    );
    assert!(tally.hand_overs > 0, "no lease was handed over");
}

const FAULTS: [SimFault; 11] = [
    SimFault::DeadProcess,
    SimFault::DoubledRequest,
    SimFault::DriftingClock,
    SimFault::LateReply,
    SimFault::LateRequest,
    SimFault::LostPush,
    SimFault::LostReply,
    SimFault::LostRequest,
    SimFault::PausedProcess,
    SimFault::RestartedStore,
    SimFault::Unreachable,
];

macro_rules! tenths {
    ($($name:ident: $number:literal,)*) => {
        mod nothing_is_violated {
            $(#[test] fn $name() { super::tenth($number); })*
        }
    };
}

tenths! {
    in_the_1st_hundred_histories: 0,
    in_the_2nd_hundred_histories: 1,
    in_the_3rd_hundred_histories: 2,
    in_the_4th_hundred_histories: 3,
    in_the_5th_hundred_histories: 4,
    in_the_6th_hundred_histories: 5,
    in_the_7th_hundred_histories: 6,
    in_the_8th_hundred_histories: 7,
    in_the_9th_hundred_histories: 8,
    in_the_10th_hundred_histories: 9,
}

#[test]
fn replay_of_a_seed_is_the_same_history() {
    let seed = from_environment("SIM_SEED", 4);
    let (first, again) = (Simulation::new(seed).run(), Simulation::new(seed).run());
    println!("{}", first.lines.join("\n"));
    println!("seed {seed}: {:?}", first.tally);
    let different = first.lines.iter().zip(&again.lines).find(|(a, b)| a != b);
    assert_eq!(different, None, "the first event that is different");
    assert_eq!(first.lines.len(), again.lines.len());
    let wrong: Vec<_> = first.violations.iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
}

#[test]
fn different_seeds_are_different_histories() {
    assert_ne!(
        Simulation::new(1).run().lines,
        Simulation::new(2).run().lines
    );
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}
