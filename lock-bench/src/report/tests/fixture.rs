//! A report as a run would make it, for tests.

use std::time::Duration;

use crate::plan::{ContendersAs, Plan, Workload};
use crate::report::{
    Environment, Latencies, Parameters, Report, SCHEMA, Sample, Series, TargetInfo, TargetKind,
    Turn,
};

/// A target with bare commands and one without, all workloads, with figures that follow from a
/// formula.
pub(super) fn report() -> Report {
    use Workload::{Contended, CrashRecovery, Fairness, HandOff, HoldSweep, OpenLoop, Uncontended};
    let rows = [
        (Uncontended, 1, 0),
        (Contended, 1, 0),
        (Uncontended, 8, 0),
        (Contended, 8, 0),
        (HandOff, 8, 0),
        (Fairness, 8, 1_000_000),
        (HoldSweep, 4, 1_000_000),
        (HoldSweep, 4, 10_000_000),
        (OpenLoop, 1, 0),
        (CrashRecovery, 2, 0),
    ];
    let targets = [
        ("redis", 180_000),
        ("redis bare", 110_000),
        ("memory", 3_000),
    ];
    let series = targets.iter().flat_map(|&(name, cost)| {
        let measured = rows
            .into_iter()
            .filter(move |(workload, ..)| *workload != CrashRecovery || !name.ends_with("bare"));
        measured.map(move |(workload, contenders, hold)| {
            measured_as(name, workload, contenders, hold, cost)
        })
    });
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
        series: series.collect(),
        targets: targets.iter().map(|(name, _)| target(name)).collect(),
    }
}

/// The series of a target that is measured so, to read and to change.
pub(super) fn series<'a>(
    report: &'a mut Report,
    target: &str,
    workload: Workload,
    contenders: u32,
) -> &'a mut Series {
    let mut all = report.series.iter_mut();
    let found = all.find(|series| {
        (series.target.as_str(), series.workload) == (target, workload)
            && series.parameters.contenders == contenders
    });
    found.expect("the fixture has it")
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
    (80..120).for_each(|micros| round_trip.record(Duration::from_micros(micros)));
    let facts = [("version", "7.0.15"), ("appendfsync", "everysec")];
    TargetInfo {
        name: name.to_owned(),
        url: format!("{name}://app:***@127.0.0.1"),
        kind,
        facts: facts.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        findings: Vec::new(),
        round_trip: (name == "redis").then_some(round_trip),
    }
}

/// Three seconds in each of which an acquisition with its release takes `cost` nanoseconds.
fn measured_as(name: &str, workload: Workload, contenders: u32, hold: u64, cost: u64) -> Series {
    let keys = match workload {
        Workload::Uncontended => contenders,
        _ => 1,
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

fn sample(workload: Workload, (contenders, keys): (u32, u32), hold: u64, cost: u64) -> Sample {
    let second = 1_000_000_000;
    let count = second * u64::from(keys) / (cost + hold);
    let waiters = u64::from(contenders / keys);
    let mut times = Latencies::default();
    for n in 0..100_u64 {
        times.record_ns(cost / 2 * waiters + cost / 4 * n.pow(4) / 100_000_000 + n * 40);
    }
    let is_shared = contenders > keys;
    let of = |n: u32| count / u64::from(contenders) / u64::from(n % 3 + 1);
    let recovery = [20_000, 40_000, 30_000].map(|times| cost * times);
    let is_crash = workload == Workload::CrashRecovery;
    let turn = Turn {
        contender: 1,
        from_ns: 0,
        to_ns: hold,
    };
    Sample {
        duration_ns: second,
        acquisitions: count,
        hand_off: if is_shared {
            times.clone()
        } else {
            Latencies::default()
        },
        acquire: times,
        per_contender: (0..contenders).map(of).collect(),
        overtakes: count / 10,
        commands: Some(count * 2),
        recovery_ns: if is_crash {
            recovery.into()
        } else {
            Vec::new()
        },
        timeline: vec![turn],
        client_processors: 0.5,
        held_ns: count * hold,
        ..Sample::default()
    }
}
