//! A report as a run would make it, for tests.

use crate::plan::{ContendersAs, Plan, Workload};
use crate::report::{
    Environment, Latencies, Parameters, Report, SCHEMA, Sample, Series, TargetInfo, TargetKind,
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
    let mut series = Vec::new();
    for (name, cost) in targets {
        for (workload, contenders, hold) in rows {
            if workload != CrashRecovery || !name.ends_with("bare") {
                series.push(measured_as(name, workload, contenders, hold, cost));
            }
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
        series,
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
            commands: "acquire and release".to_owned(),
        },
        None => TargetKind::Lock {
            backend: name.to_owned(),
        },
    };
    let mut round_trip = Latencies::default();
    (80..120).for_each(|micros| round_trip.record_ns(micros * 1_000));
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

/// Three repeats of a second, in which an acquisition with its release takes `cost` nanoseconds or
/// a little more.
fn measured_as(name: &str, workload: Workload, contenders: u32, hold: u64, cost: u64) -> Series {
    let is_crash = workload == Workload::CrashRecovery;
    let parameters = Parameters {
        contenders,
        contenders_as: ContendersAs::Tasks,
        keys: match workload {
            Workload::Uncontended => contenders,
            _ => 1,
        },
        hold_ns: hold,
        ttl_ms: if is_crash { 1_000 + cost / 100 } else { 30_000 },
        rate: (workload == Workload::OpenLoop).then_some(100.0),
    };
    let samples = (0..3).map(|repeat| {
        let mut sample = sample(&parameters, cost + cost / 20 * repeat);
        if is_crash {
            sample.recovery_ns = [20_000, 40_000, 30_000].map(|times| cost * times).into();
        }
        sample
    });
    Series {
        target: name.to_owned(),
        workload,
        samples: samples.collect(),
        parameters,
    }
}

fn sample(parameters: &Parameters, cost: u64) -> Sample {
    let (contenders, keys, hold) = (parameters.contenders, parameters.keys, parameters.hold_ns);
    let count = 1_000_000_000 * u64::from(keys) / (cost + hold);
    let mut times = Latencies::default();
    for n in 0..100_u64 {
        let waiters = u64::from(contenders / keys);
        times.record_ns(cost / 2 * waiters + cost / 4 * n.pow(4) / 100_000_000 + n * 40);
    }
    let of = |n: u32| count / u64::from(contenders) / u64::from(n % 3 + 1);
    Sample {
        duration_ns: 1_000_000_000,
        acquisitions: count,
        hand_off: match contenders > keys {
            true => times.clone(),
            false => Latencies::default(),
        },
        acquire: times,
        per_contender: (0..contenders).map(of).collect(),
        overtakes: count / 10,
        commands: Some(count * 2),
        client_processors: 0.5,
        held_ns: count * hold,
        ..Sample::default()
    }
}
