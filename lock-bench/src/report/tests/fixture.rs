//! A report as a run would make it, for tests.

use std::collections::BTreeMap;

use crate::plan::{ContendersAs, Plan, Workload};
use crate::report::{
    Environment, Latencies, Parameters, Report, SCHEMA, Sample, Series, TargetInfo, TargetKind,
    Turn,
};

/// A target with bare commands and one without, all workloads, with figures that follow from a
/// formula.
pub(super) fn report() -> Report {
    let names = ["redis", "redis bare", "memory"];
    let mut series = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let cost = [180_000, 110_000, 3_000][at];
        for contenders in [1, 8] {
            series.push(measured(name, Workload::Uncontended, contenders, 0, cost));
            series.push(measured(name, Workload::Contended, contenders, 0, cost));
        }
        series.push(measured(name, Workload::HandOff, 8, 0, cost));
        series.push(measured(name, Workload::Fairness, 8, 1_000_000, cost));
        for hold in [1_000_000, 10_000_000] {
            series.push(measured(name, Workload::HoldSweep, 4, hold, cost));
        }
        series.push(measured(name, Workload::OpenLoop, 1, 0, cost));
        if !name.ends_with("bare") {
            series.push(measured(name, Workload::CrashRecovery, 2, 0, cost));
        }
    }
    Report {
        schema: SCHEMA.to_owned(),
        environment: Environment {
            started: "2026-11-22T08:30:00Z".to_owned(),
            processor: "Model <i>X</i> & Sons".to_owned(),
            cores: 2,
            kernel: "Linux 6.1".to_owned(),
            version: "0.1.0".to_owned(),
            build: "rustc 1.95, release".to_owned(),
            load: 0.25,
            warnings: Vec::new(),
        },
        plan: Plan::default(),
        targets: names.into_iter().map(target).collect(),
        series,
    }
}

fn target(name: &str) -> TargetInfo {
    let kind = match name.strip_suffix(" bare") {
        Some(of) => TargetKind::Bare {
            of: of.to_owned(),
            commands: "take and give back".to_owned(),
        },
        None => TargetKind::Lock {
            backend: name.to_owned(),
        },
    };
    let mut round_trip = Latencies::default();
    (80..120).for_each(|micros| round_trip.record_ns(micros * 1000));
    let facts = [("version", "7.0.15"), ("appendfsync", "everysec")];
    TargetInfo {
        name: name.to_owned(),
        url: format!("{name}://app:***@127.0.0.1"),
        kind,
        facts: facts.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        findings: Vec::new(),
        round_trip: (name != "memory" && !name.ends_with("bare")).then_some(round_trip),
    }
}

fn measured(name: &str, workload: Workload, contenders: u32, hold: u64, cost: u64) -> Series {
    let keys = if workload == Workload::Uncontended {
        contenders
    } else {
        1
    };
    Series {
        target: name.to_owned(),
        workload,
        parameters: Parameters {
            contenders,
            contenders_as: ContendersAs::Tasks,
            keys,
            hold_ns: hold,
            ttl_ms: match workload {
                Workload::CrashRecovery => 1_000 + cost / 100,
                _ => 30_000,
            },
            rate: (workload == Workload::OpenLoop).then_some(100.0),
        },
        samples: (0..3)
            .map(|n| sample(workload, (contenders, keys), hold, cost + cost / 20 * n))
            .collect(),
    }
}

/// One second in which an acquisition with its release takes `cost` nanoseconds.
fn sample(workload: Workload, (contenders, keys): (u32, u32), hold: u64, cost: u64) -> Sample {
    let second = 1_000_000_000;
    let count = second * u64::from(keys) / (cost + hold);
    let waiters = u64::from(contenders / keys);
    let tail = |n: u64| cost / 2 * waiters + cost / 4 * n.pow(4) / 100_000_000;
    let times = || {
        let mut times = Latencies::default();
        (0..100).for_each(|n| times.record_ns(tail(n) + n * 40));
        times
    };
    let is_shared = contenders > keys;
    let of = |n: u32| count / u64::from(contenders) / u64::from(n % 3 + 1);
    Sample {
        duration_ns: second,
        acquisitions: count,
        errors: BTreeMap::new(),
        acquire: times(),
        hand_off: if is_shared {
            times()
        } else {
            Latencies::default()
        },
        per_contender: (0..contenders).map(of).collect(),
        overtakes: count / 10,
        commands: Some(count * 2),
        recovery_ns: match workload {
            Workload::CrashRecovery => vec![cost * 20_000, cost * 40_000, cost * 30_000],
            _ => Vec::new(),
        },
        timeline: (0..u32::from(is_shared) * 250)
            .map(|n| Turn {
                contender: n * n % 7 % contenders,
                from_ns: u64::from(n) * (cost + hold),
                to_ns: u64::from(n) * (cost + hold) + hold.max(cost / 2),
            })
            .collect(),
        client_processors: 0.5,
        held_ns: count * hold,
        ..Sample::default()
    }
}
