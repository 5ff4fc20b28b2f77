use std::time::Duration;

use super::prepared::PreparedTarget;
use crate::clock::nanos;
use crate::connection::Opened;
use crate::plan::{ContendersAs, Plan, Workload, name_of};
use crate::report::{Parameters, Series, TargetKind};
use crate::subject::{Failure, INVALID};
use crate::target::Target;

/// A workload with its parameters, and the numbers of the targets that are measured for it.
#[derive(Debug)]
pub(super) struct ScheduleEntry {
    pub(super) workload: Workload,
    pub(super) parameters: Parameters,
    pub(super) targets: Vec<usize>,
}

impl ScheduleEntry {
    /// The series without samples, in the order of the targets.
    pub(super) fn series(&self, targets: &[PreparedTarget]) -> Vec<Series> {
        let series = self.targets.iter().map(|&target| Series {
            target: targets[target].info.name.clone(),
            workload: self.workload,
            parameters: self.parameters.clone(),
            samples: Vec::new(),
        });
        series.collect()
    }
}

/// What is measured in each repeat, and why something is not, one sentence each.
pub(super) fn schedule(
    plan: &Plan,
    targets: &[(&str, &Opened)],
) -> (Vec<ScheduleEntry>, Vec<String>) {
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    for &workload in &plan.workloads {
        let mut measured = Vec::new();
        for (at, (name, opened)) in targets.iter().enumerate() {
            match fit(opened, workload, plan.contenders_as) {
                Fit::Measured => measured.push(at),
                Fit::NoLimit => {}
                Fit::LeftOut(why) => {
                    let workload = name_of(workload);
                    left_out.push(format!("{name} is left out of {workload}{why}"));
                }
            }
        }
        if !measured.is_empty() {
            entries.extend(parameters(plan, workload).into_iter().map(|parameters| {
                ScheduleEntry {
                    workload,
                    parameters,
                    targets: measured.clone(),
                }
            }));
        }
    }
    (entries, left_out)
}

/// Whether a workload is measured.
enum Fit {
    /// It cannot be, and a reader has to know why.
    LeftOut(&'static str),
    Measured,
    /// These bare commands say nothing of the locks beside them.
    NoLimit,
}

fn fit(opened: &Opened, workload: Workload, contenders_as: ContendersAs) -> Fit {
    let needs_locks = matches!(
        workload,
        Workload::Layer | Workload::Http | Workload::Footprint
    );
    let needs_processes = match workload {
        Workload::CrashRecovery => true,
        _ => contenders_as == ContendersAs::Processes && !needs_locks,
    };
    let is_alone = needs_processes && opened.is_of_one_process;
    match &opened.kind {
        TargetKind::Bare { .. } => {
            let is_limit = opened.has_queue || workload == Workload::Uncontended;
            match has_limit(workload) && is_limit && !is_alone {
                true => Fit::Measured,
                false => Fit::NoLimit,
            }
        }
        _ if is_alone => Fit::LeftOut(": other processes do not see its locks"),
        TargetKind::Peer { .. } if needs_locks => Fit::LeftOut(""),
        TargetKind::Lock { .. } | TargetKind::Peer { .. } => Fit::Measured,
    }
}

/// Whether bare commands are to be measured beside anything.
pub(super) fn wants_bare(plan: &Plan) -> bool {
    plan.with_bare && plan.workloads.iter().copied().any(has_limit)
}

fn has_limit(workload: Workload) -> bool {
    use Workload::{CrashRecovery, Footprint, Http, Layer};
    !matches!(workload, CrashRecovery | Footprint | Http | Layer)
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
        Workload::Layer | Workload::Http => all.map(|n| tasks(with(n, n, plan.hold))).collect(),
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
    let mut contenders = plan.contenders.iter();
    let all_fit = contenders.all(|n| (1..=MAX_CONTENDERS).contains(n));
    let has_length = (MIN_DURATION..=HOUR).contains(&plan.duration);
    let has_repeats = (1..=1_000).contains(&plan.repeats);
    let has_rate = plan.rate > 0.0 && plan.rate <= 1e6;
    let rules = [
        (!targets.is_empty(), "there is no target"),
        (!plan.workloads.is_empty(), "there is no workload"),
        (!plan.contenders.is_empty(), "there are no contenders"),
        (all_fit, "there are between 1 and 10000 contenders"),
        (has_repeats, "there are between 1 and 1000 repeats"),
        (has_length, "a measurement takes between 10ms and 1h"),
        (plan.warm_up <= HOUR, "a warm-up takes at most 1h"),
        (
            plan.hold <= plan.duration,
            "a hold is shorter than the measurement",
        ),
        (
            has_rate,
            "the rate is more than 0 and at most 1000000 per second",
        ),
    ];
    match rules.into_iter().find(|(is_kept, _)| !is_kept) {
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
const MIN_DURATION: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polylock::DistributedLock;
    use polylock::memory::Memory;

    use super::*;
    use crate::subject::SubjectLocks;

    /// Memory and another backend with their bare commands, and another library: their numbers for
    /// each entry.
    fn scheduled(plan: &Plan) -> (Vec<ScheduleEntry>, Vec<String>) {
        let locks = || Arc::new(Memory::new()) as Arc<dyn DistributedLock>;
        let mut of_memory = Opened::bare("mine", "", SubjectLocks(locks()));
        of_memory.is_of_one_process = true;
        let mut polls = Opened::bare("redis", "", SubjectLocks(locks()));
        polls.has_queue = false;
        schedule(
            plan,
            &[
                ("mine", &Opened::locks("memory", locks())),
                ("mine (bare)", &of_memory),
                ("redis", &Opened::locks("redis", locks())),
                ("redis (bare)", &polls),
                ("other", &Opened::peer("other", SubjectLocks(locks()))),
            ],
        )
    }

    fn plan(workloads: &[Workload], contenders: &[u32]) -> Plan {
        Plan {
            workloads: workloads.to_vec(),
            contenders: contenders.to_vec(),
            ..Plan::default()
        }
    }

    #[test]
    fn targets_that_cannot_be_measured_are_left_out() {
        use Workload::{Contended, CrashRecovery, Footprint, HandOff, Uncontended};
        let processes = ": other processes do not see its locks";
        let cases: &[(Workload, ContendersAs, &[usize], &[String])] = &[
            (Uncontended, ContendersAs::Tasks, &[0, 1, 2, 3, 4], &[]),
            // Bare commands that poll are no limit of a hand-off.
            (HandOff, ContendersAs::Tasks, &[0, 1, 2, 4], &[]),
            (
                Contended,
                ContendersAs::Processes,
                &[2, 4],
                &[format!("mine is left out of contended{processes}")],
            ),
            (
                CrashRecovery,
                ContendersAs::Tasks,
                &[2, 4],
                &[format!("mine is left out of crash-recovery{processes}")],
            ),
            (
                Footprint,
                ContendersAs::Processes,
                &[0, 2],
                &["other is left out of footprint".to_owned()],
            ),
        ];
        for (workload, contenders_as, targets, left_out) in cases {
            let mut plan = plan(&[*workload], &[4]);
            plan.contenders_as = *contenders_as;
            let (entries, found) = scheduled(&plan);
            assert_eq!(entries[0].targets, *targets, "{workload:?}");
            assert_eq!(found, *left_out, "{workload:?}");
        }
    }

    #[test]
    fn bare_commands_are_wanted_where_they_are_a_limit() {
        use Workload::{CrashRecovery, Layer, Uncontended};
        for (workloads, with_bare, is_wanted) in [
            ([CrashRecovery, Uncontended], true, true),
            ([CrashRecovery, Uncontended], false, false),
            ([CrashRecovery, Layer], true, false),
        ] {
            let mut plan = plan(&workloads, &[1]);
            plan.with_bare = with_bare;
            assert_eq!(wants_bare(&plan), is_wanted, "{workloads:?}");
        }
    }

    #[test]
    fn workloads_have_the_parameters_that_their_question_needs() {
        use Workload::{Footprint, HandOff, HoldSweep, Uncontended};
        let (entries, _) = scheduled(&plan(
            &[Uncontended, HandOff, HoldSweep, Footprint],
            &[1, 4],
        ));
        let parameters = entries.iter().map(|entry| &entry.parameters);
        let found: Vec<_> = parameters
            .map(|p| (p.contenders, p.keys, p.hold_ns / 1_000_000))
            .collect();
        let sweep = [1, 4]
            .into_iter()
            .flat_map(|n| [0, 1, 10, 100].map(|ms| (n, 1, ms)));
        let mut expected = vec![(1, 1, 0), (4, 4, 0), (4, 1, 1)];
        expected.extend(sweep);
        expected.push((1_000, 1_000, 0));
        assert_eq!(found, expected);
    }
}
