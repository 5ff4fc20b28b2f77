use std::time::Duration;

use super::prepared::Prepared;
use crate::clock::nanos;
use crate::plan::{ContendersAs, Plan, Workload};
use crate::report::{Parameters, Series, name_of};
use crate::worker::Part;

/// What is measured in each repeat, in which order, and what is not.
#[derive(Debug)]
pub(super) struct Agenda {
    pub(super) questions: Vec<Question>,
    /// Why something is not measured, one sentence each.
    pub(super) left_out: Vec<String>,
}

/// A workload with its parameters, and who is asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) workload: Workload,
    pub(super) parameters: Parameters,
    /// Number of the target, its part, and the number of the series.
    pub(super) asked: Vec<(usize, Part, usize)>,
}

/// What a target can be asked.
#[derive(Clone, Debug)]
pub(super) struct Abilities {
    pub(super) name: String,
    pub(super) is_of_one_process: bool,
    pub(super) has_layer: bool,
    /// Whether bare commands come with it, and whether they wait well.
    pub(super) bare: Option<bool>,
}

impl Agenda {
    pub(super) fn of(plan: &Plan, targets: &[Prepared]) -> Self {
        let abilities: Vec<_> = targets.iter().map(Prepared::abilities).collect();
        Self::by_abilities(plan, &abilities)
    }

    fn by_abilities(plan: &Plan, targets: &[Abilities]) -> Self {
        let mut agenda = Self {
            questions: Vec::new(),
            left_out: Vec::new(),
        };
        let mut series = 0;
        for &workload in &plan.workloads {
            let asked = agenda.who_is_asked(plan, workload, targets);
            for parameters in parameters(plan, workload) {
                let asked: Vec<_> = asked
                    .iter()
                    .zip(series..)
                    .map(|(&(target, part), series)| (target, part, series))
                    .collect();
                series += asked.len();
                if !asked.is_empty() {
                    agenda.questions.push(Question {
                        workload,
                        parameters,
                        asked,
                    });
                }
            }
        }
        agenda
    }

    fn who_is_asked(
        &mut self,
        plan: &Plan,
        workload: Workload,
        targets: &[Abilities],
    ) -> Vec<(usize, Part)> {
        let needs_processes = match workload {
            Workload::CrashRecovery => true,
            Workload::Layer => false,
            _ => plan.contenders_as == ContendersAs::Processes,
        };
        let mut asked = Vec::new();
        for (number, target) in targets.iter().enumerate() {
            let name = &target.name;
            if needs_processes && target.is_of_one_process {
                let why = "other processes do not see its locks";
                self.leave_out(format!(
                    "{name} is left out of {}: {why}",
                    name_of(workload)
                ));
                continue;
            }
            if workload == Workload::Layer && !target.has_layer {
                self.leave_out(format!("{name} is left out of {}", name_of(workload)));
                continue;
            }
            asked.push((number, Part::Whole));
            let is_a_limit = target.bare.is_some_and(|waits| match workload {
                Workload::Uncontended => true,
                _ => waits && has_limit(workload),
            });
            if is_a_limit {
                asked.push((number, Part::Bare));
            }
        }
        asked
    }

    fn leave_out(&mut self, why: String) {
        if !self.left_out.contains(&why) {
            self.left_out.push(why);
        }
    }

    /// How many measurements a repeat has.
    pub(super) fn measurements(&self) -> u32 {
        let all: usize = self.questions.iter().map(|q| q.asked.len()).sum();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// The series without samples.
    pub(super) fn series(&self, targets: &[Prepared]) -> Vec<Series> {
        let asked = self.questions.iter().flat_map(|question| {
            let asked = question.asked.iter();
            asked.map(move |&(target, part, _)| (question, target, part))
        });
        asked
            .map(|(question, target, part)| Series {
                target: targets[target].name(part),
                workload: question.workload,
                parameters: question.parameters.clone(),
                samples: Vec::new(),
            })
            .collect()
    }
}

/// Whether bare commands are to be measured beside anything.
pub(super) fn wants_bare(plan: &Plan) -> bool {
    plan.with_bare && plan.workloads.iter().copied().any(has_limit)
}

fn has_limit(workload: Workload) -> bool {
    !matches!(workload, Workload::CrashRecovery | Workload::Layer)
}

/// With which parameters a workload is measured, one after the other.
fn parameters(plan: &Plan, workload: Workload) -> Vec<Parameters> {
    let with = |contenders: u32, keys: u32, hold: Duration| Parameters {
        contenders,
        contenders_as: plan.contenders_as,
        keys,
        hold_ns: nanos(hold),
        ttl_ms: u64::try_from(plan.ttl.as_millis()).unwrap_or(u64::MAX),
        rate: None,
    };
    let all = plan.contenders.iter().copied();
    let most = all.clone().max().unwrap_or(1);
    match workload {
        Workload::Uncontended => all.map(|n| with(n, n, plan.hold)).collect(),
        Workload::Contended => all.map(|n| with(n, 1, Duration::ZERO)).collect(),
        Workload::HandOff | Workload::Fairness => {
            let hold = plan.hold.max(LEAST_HOLD);
            let several: Vec<_> = all.filter(|n| *n > 1).collect();
            let several = if several.is_empty() { vec![2] } else { several };
            several.into_iter().map(|n| with(n, 1, hold)).collect()
        }
        Workload::HoldSweep => {
            let holds = SWEPT.map(Duration::from_millis);
            all.flat_map(|n| holds.map(|hold| with(n, 1, hold)))
                .collect()
        }
        Workload::OpenLoop => vec![Parameters {
            rate: Some(plan.rate),
            ..with(most, KEYS, plan.hold)
        }],
        Workload::CrashRecovery => vec![Parameters {
            contenders_as: ContendersAs::Processes,
            ..with(2, 1, Duration::ZERO)
        }],
        Workload::Layer => all
            .map(|n| Parameters {
                contenders_as: ContendersAs::Tasks,
                ..with(n, n, plan.hold)
            })
            .collect(),
    }
}

/// So that the others wait already when it is over.
const LEAST_HOLD: Duration = Duration::from_millis(1);
/// Holds of the sweep, in milliseconds.
const SWEPT: [u64; 4] = [0, 1, 10, 100];
/// Keys of the open loop.
const KEYS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(name: &str, is_of_one_process: bool, bare: Option<bool>) -> Abilities {
        Abilities {
            name: name.to_owned(),
            is_of_one_process,
            has_layer: true,
            bare,
        }
    }

    fn agenda(workloads: &[Workload], contenders_as: ContendersAs) -> Agenda {
        let plan = Plan {
            workloads: workloads.to_vec(),
            contenders: vec![1, 4],
            contenders_as,
            ..Plan::default()
        };
        let targets = [
            abilities("memory", true, None),
            abilities("redis", false, Some(false)),
            abilities("postgres", false, Some(true)),
        ];
        Agenda::by_abilities(&plan, &targets)
    }

    #[test]
    fn series_are_numbered_in_the_order_of_questions_and_targets() {
        let workloads = [Workload::Uncontended, Workload::HandOff];
        let agenda = agenda(&workloads, ContendersAs::Tasks);
        let asked = agenda.questions.iter().flat_map(|q| q.asked.iter());
        let numbers: Vec<_> = asked.map(|(_, _, series)| *series).collect();
        assert_eq!(numbers, (0..14).collect::<Vec<_>>());
        assert_eq!(agenda.measurements(), 14);
        let whom: Vec<_> = agenda.questions.iter().map(|q| q.asked.len()).collect();
        assert_eq!(
            whom,
            [5, 5, 4],
            "bare commands that poll are no limit of a hand-off"
        );
        assert_eq!(agenda.questions[2].parameters.contenders, 4);
        assert!(agenda.left_out.is_empty());
    }

    #[test]
    fn bare_commands_are_wanted_where_they_are_a_limit() {
        let wants = |workloads: &[Workload], with_bare| {
            wants_bare(&Plan {
                workloads: workloads.to_vec(),
                with_bare,
                ..Plan::default()
            })
        };
        let both = [Workload::CrashRecovery, Workload::Uncontended];
        assert!(wants(&both, true));
        assert!(!wants(&both, false));
        assert!(!wants(&[Workload::CrashRecovery, Workload::Layer], true));
    }

    #[test]
    fn locks_of_one_process_are_left_out_where_there_are_several() {
        let agenda = agenda(&[Workload::CrashRecovery], ContendersAs::Tasks);
        assert_eq!(agenda.questions.len(), 1);
        assert_eq!(agenda.questions[0].asked.len(), 2);
        assert_eq!(agenda.left_out.len(), 1);
        assert!(agenda.left_out[0].contains("memory is left out of crash-recovery"));
    }

    #[test]
    fn the_sweep_has_four_holds_for_each_number_of_contenders() {
        let plan = Plan {
            contenders: vec![2, 3],
            ..Plan::default()
        };
        let holds: Vec<_> = parameters(&plan, Workload::HoldSweep)
            .iter()
            .map(|p| (p.contenders, p.hold_ns / 1_000_000))
            .collect();
        let expected = [2, 3].into_iter().flat_map(|n| SWEPT.map(|ms| (n, ms)));
        assert_eq!(holds, expected.collect::<Vec<_>>());
    }
}
