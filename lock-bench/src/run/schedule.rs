use std::time::Duration;

use super::prepared::Prepared;
use crate::clock::nanos;
use crate::plan::{ContendersAs, Plan, Workload, name_of};
use crate::report::{Parameters, Series};
use crate::subject::{Failure, INVALID};
use crate::target::Target;
use crate::worker::Part;

/// What is measured in each repeat, in which order, and what is not.
#[derive(Debug, Default)]
pub(super) struct RunSchedule {
    pub(super) entries: Vec<ScheduledWorkload>,
    /// Why something is not measured, one sentence each.
    pub(super) left_out: Vec<String>,
}

/// A workload with its parameters on all targets.
#[derive(Debug)]
pub(super) struct ScheduledWorkload {
    pub(super) workload: Workload,
    pub(super) parameters: Parameters,
    /// Number of the target, its part, and the number of the series.
    pub(super) measured: Vec<(usize, Part, usize)>,
}

/// What a target can be measured for.
#[derive(Clone, Debug)]
pub(super) struct Abilities {
    pub(super) name: String,
    pub(super) is_of_one_process: bool,
    /// Whether they are locks of this project.
    pub(super) has_locks: bool,
    /// Whether bare commands come with it, and whether their server queues waiters.
    pub(super) bare: Option<bool>,
}

impl RunSchedule {
    pub(super) fn of(plan: &Plan, targets: &[Abilities]) -> Self {
        let mut schedule = Self::default();
        let mut series = 0;
        for &workload in &plan.workloads {
            let measured = schedule.measured(plan, workload, targets);
            for parameters in parameters(plan, workload) {
                let measured = measured.iter().zip(series..);
                let measured: Vec<_> = measured.map(|(&(at, part), s)| (at, part, s)).collect();
                series += measured.len();
                if !measured.is_empty() {
                    schedule.entries.push(ScheduledWorkload {
                        workload,
                        parameters,
                        measured,
                    });
                }
            }
        }
        schedule
    }

    fn measured(
        &mut self,
        plan: &Plan,
        workload: Workload,
        targets: &[Abilities],
    ) -> Vec<(usize, Part)> {
        let needs_processes = match workload {
            Workload::CrashRecovery => true,
            Workload::Layer | Workload::Footprint => false,
            _ => plan.contenders_as == ContendersAs::Processes,
        };
        let needs_locks = matches!(workload, Workload::Layer | Workload::Footprint);
        let mut measured = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            let why = match target {
                _ if needs_processes && target.is_of_one_process => {
                    ": other processes do not see its locks"
                }
                _ if needs_locks && !target.has_locks => "",
                _ => {
                    measured.push((at, Part::Whole));
                    let queues = |queues| queues || workload == Workload::Uncontended;
                    if has_limit(workload) && target.bare.is_some_and(queues) {
                        measured.push((at, Part::Bare));
                    }
                    continue;
                }
            };
            let (name, workload) = (&target.name, name_of(workload));
            self.left_out
                .push(format!("{name} is left out of {workload}{why}"));
        }
        measured
    }

    /// How many measurements a repeat has.
    pub(super) fn measurements(&self) -> u32 {
        let all: usize = self.entries.iter().map(|entry| entry.measured.len()).sum();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// The series without samples.
    pub(super) fn series(&self, targets: &[Prepared]) -> Vec<Series> {
        let all = self.entries.iter().flat_map(|entry| {
            entry.measured.iter().map(move |&(target, part, _)| Series {
                target: targets[target].name(part),
                workload: entry.workload,
                parameters: entry.parameters.clone(),
                samples: Vec::new(),
            })
        });
        all.collect()
    }
}

/// Whether bare commands are to be measured beside anything.
pub(super) fn wants_bare(plan: &Plan) -> bool {
    plan.with_bare && plan.workloads.iter().copied().any(has_limit)
}

fn has_limit(workload: Workload) -> bool {
    use Workload::{CrashRecovery, Footprint, Layer};
    !matches!(workload, CrashRecovery | Footprint | Layer)
}

/// The parameters with which a workload is measured, one after the other.
fn parameters(plan: &Plan, workload: Workload) -> Vec<Parameters> {
    let with = |contenders: u32, keys: u32, hold: Duration| Parameters {
        contenders,
        contenders_as: plan.contenders_as,
        keys,
        hold_ns: nanos(hold),
        ttl_ms: u64::try_from(plan.ttl.as_millis()).unwrap_or(u64::MAX),
        rate: None,
    };
    let tasks = |parameters: Parameters| Parameters {
        contenders_as: ContendersAs::Tasks,
        ..parameters
    };
    let all = plan.contenders.iter().copied();
    let most = all.clone().max().unwrap_or(1);
    match workload {
        Workload::Uncontended => all.map(|n| with(n, n, plan.hold)).collect(),
        Workload::Contended => all.map(|n| with(n, 1, Duration::ZERO)).collect(),
        Workload::HandOff | Workload::Fairness => {
            let hold = plan.hold.max(MIN_HOLD);
            let mut several: Vec<_> = all.filter(|n| *n > 1).collect();
            if several.is_empty() {
                several.push(2);
            }
            several.into_iter().map(|n| with(n, 1, hold)).collect()
        }
        Workload::HoldSweep => {
            let holds = SWEPT.map(Duration::from_millis);
            all.flat_map(|n| holds.map(|hold| with(n, 1, hold)))
                .collect()
        }
        Workload::OpenLoop => vec![Parameters {
            rate: Some(plan.rate),
            ..with(most, OPEN_LOOP_KEYS, plan.hold)
        }],
        Workload::CrashRecovery => vec![Parameters {
            contenders_as: ContendersAs::Processes,
            ..with(2, 1, Duration::ZERO)
        }],
        Workload::Layer => all.map(|n| tasks(with(n, n, plan.hold))).collect(),
        Workload::Footprint => {
            let locks = most.max(MIN_LOCKS);
            vec![tasks(with(locks, locks, Duration::ZERO))]
        }
    }
}

/// Says what of a plan cannot be carried out.
pub(super) fn check(plan: &Plan, targets: &[Target]) -> Result<(), Failure> {
    let mut names: Vec<_> = targets.iter().map(|target| &*target.name).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    if let Some([name, _]) = twice {
        let text = format!("two targets have the name {name:?}");
        return Err(Failure::new(INVALID, text));
    }
    let contenders = 1..=MAX_CONTENDERS;
    let has_contenders = !plan.contenders.is_empty();
    let rules = [
        (targets.is_empty(), "there is no target"),
        (plan.workloads.is_empty(), "there is no workload"),
        (
            !has_contenders || !plan.contenders.iter().all(|n| contenders.contains(n)),
            "there are between 1 and 10000 contenders",
        ),
        (
            !(1..=1_000).contains(&plan.repeats),
            "there are between 1 and 1000 repeats",
        ),
        (
            !(Duration::from_millis(10)..=HOUR).contains(&plan.duration),
            "a measurement takes between 10ms and 1h",
        ),
        (plan.warm_up > HOUR, "a warm-up takes at most 1h"),
        (
            plan.hold > plan.duration,
            "a hold is shorter than the measurement",
        ),
        (
            !(plan.rate > 0.0 && plan.rate <= 1e6),
            "the rate is more than 0 and at most 1000000 per second",
        ),
    ];
    match rules.into_iter().find(|(is_broken, _)| *is_broken) {
        Some((_, rule)) => Err(Failure::new(INVALID, rule)),
        None => Ok(()),
    }
}

/// So that the others wait already when it is over.
const MIN_HOLD: Duration = Duration::from_millis(1);
/// Locks of a footprint; fewer are lost in what else the process takes.
const MIN_LOCKS: u32 = 1_000;
/// Holds of the sweep, in milliseconds.
const SWEPT: [u64; 4] = [0, 1, 10, 100];
const OPEN_LOOP_KEYS: u32 = 100;
const MAX_CONTENDERS: u32 = 10_000;
const HOUR: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(workloads: &[Workload], contenders: &[u32]) -> RunSchedule {
        let plan = Plan {
            workloads: workloads.to_vec(),
            contenders: contenders.to_vec(),
            ..Plan::default()
        };
        let targets = [
            ("memory", None),
            ("redis", Some(false)),
            ("postgres", Some(true)),
        ];
        let targets = targets.map(|(name, bare)| Abilities {
            name: name.to_owned(),
            is_of_one_process: name == "memory",
            has_locks: name != "postgres",
            bare,
        });
        RunSchedule::of(&plan, &targets)
    }

    #[test]
    fn series_are_numbered_in_the_order_of_workloads_and_targets() {
        let schedule = schedule(&[Workload::Uncontended, Workload::HandOff], &[1, 4]);
        let measured = schedule.entries.iter().flat_map(|entry| &entry.measured);
        let numbers: Vec<_> = measured.map(|(_, _, series)| *series).collect();
        assert_eq!(numbers, (0..14).collect::<Vec<_>>());
        assert_eq!(schedule.measurements(), 14);
        let counts: Vec<_> = schedule.entries.iter().map(|e| e.measured.len()).collect();
        // Bare commands that poll are no limit of a hand-off.
        assert_eq!(counts, [5, 5, 4]);
        assert_eq!(schedule.entries[2].parameters.contenders, 4);
        assert!(schedule.left_out.is_empty());
    }

    #[test]
    fn bare_commands_are_wanted_where_they_are_a_limit() {
        use Workload::{CrashRecovery, Layer, Uncontended};
        for (workloads, with_bare, is_wanted) in [
            ([CrashRecovery, Uncontended], true, true),
            ([CrashRecovery, Uncontended], false, false),
            ([CrashRecovery, Layer], true, false),
        ] {
            let plan = Plan {
                workloads: workloads.to_vec(),
                with_bare,
                ..Plan::default()
            };
            assert_eq!(wants_bare(&plan), is_wanted, "{workloads:?}");
        }
    }

    #[test]
    fn targets_that_cannot_be_measured_are_left_out() {
        let schedule = schedule(&[Workload::CrashRecovery, Workload::Footprint], &[1]);
        let counts: Vec<_> = schedule.entries.iter().map(|e| e.measured.len()).collect();
        assert_eq!(counts, [2, 2]);
        assert_eq!(
            schedule.left_out,
            [
                "memory is left out of crash-recovery: other processes do not see its locks",
                "postgres is left out of footprint",
            ]
        );
        assert_eq!(schedule.entries[1].parameters.keys, MIN_LOCKS);
    }

    #[test]
    fn the_sweep_has_four_holds_for_each_number_of_contenders() {
        let schedule = schedule(&[Workload::HoldSweep], &[2, 3]);
        let entries = schedule.entries.iter().map(|entry| &entry.parameters);
        let holds: Vec<_> = entries
            .map(|p| (p.contenders, p.hold_ns / 1_000_000))
            .collect();
        let expected = [2, 3].into_iter().flat_map(|n| SWEPT.map(|ms| (n, ms)));
        assert_eq!(holds, expected.collect::<Vec<_>>());
    }
}
