//! Which fault strikes when and for how long: a function of the seed alone.

use std::time::Duration;

use lock_testkit::sim::Rng;

use crate::backend::BackendKind;
use crate::faults::{self, FaultKind};

#[derive(Clone, Copy)]
pub(crate) struct PlannedFault {
    pub(crate) kind: &'static FaultKind,
    /// Since the start of the run.
    pub(crate) inject_at: Duration,
    pub(crate) heal_at: Duration,
    /// What the fault draws its victims from.
    pub(crate) seed: u64,
}

/// Plans a run of this length: one fault or two at a time, healed before the next, with a quiet
/// end.
///
/// Faults of the backend are drawn by weight, in rounds. `only` names the faults to draw from; all if it
/// is empty.
pub(crate) fn plan(
    backend: BackendKind,
    seed: u64,
    length: Duration,
    only: &[String],
) -> Vec<PlannedFault> {
    let wanted =
        |kind: &&'static FaultKind| only.is_empty() || only.iter().any(|name| name == kind.name);
    let kinds: Vec<_> = faults::fitting(backend).filter(wanted).collect();
    let mut rng = Rng::stream(seed, "schedule", 0);
    let mut plan = Vec::new();
    if kinds.is_empty() {
        return plan;
    }
    let mut bag = Vec::new();
    let mut at = WARM_UP;
    loop {
        let first = draw(&mut rng, &mut bag, &kinds);
        let first = strike(&mut rng, first, at);
        let mut end = first.heal_at;
        let mut both = vec![first];
        let second = match first.kind.together_with {
            [] if rng.chance(300) => Some(draw(&mut rng, &mut bag, &kinds)),
            [] => None,
            names => {
                let name = *rng.pick(names);
                faults::fitting(backend).find(|kind| kind.name == name)
            }
        };
        if let Some(second) = second {
            let during = (first.heal_at - at).mul_f64(0.5);
            let second = strike(&mut rng, second, at + during);
            end = end.max(second.heal_at);
            both.push(second);
        }
        if end + QUIET_END > length {
            return plan;
        }
        plan.append(&mut both);
        at = end + rng.millis(500, 2_500);
    }
}

fn draw(
    rng: &mut Rng,
    bag: &mut Vec<&'static FaultKind>,
    kinds: &[&'static FaultKind],
) -> &'static FaultKind {
    if bag.is_empty() {
        let copies = |kind: &&'static FaultKind| std::iter::repeat_n(*kind, kind.weight);
        bag.extend(kinds.iter().flat_map(copies));
    }
    bag.swap_remove(rng.index(bag.len()))
}

fn strike(rng: &mut Rng, kind: &'static FaultKind, at: Duration) -> PlannedFault {
    let (shortest, longest) = kind.millis;
    PlannedFault {
        kind,
        inject_at: at,
        heal_at: at + rng.millis(shortest, longest),
        seed: rng.next(),
    }
}

const WARM_UP: Duration = Duration::from_secs(2);
const QUIET_END: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn names(backend: BackendKind, seed: u64, length: Duration) -> Vec<&'static str> {
        let plan = plan(backend, seed, length, &[]);
        plan.iter().map(|planned| planned.kind.name).collect()
    }

    #[test]
    fn a_seed_makes_the_same_schedule_again_and_another_seed_another() {
        for backend in BackendKind::value_variants() {
            assert_eq!(names(*backend, 1, MINUTE), names(*backend, 1, MINUTE));
            assert_ne!(names(*backend, 1, MINUTE), names(*backend, 2, MINUTE));
        }
    }

    #[test]
    fn ten_minutes_have_every_fault_that_fits() {
        for backend in BackendKind::value_variants() {
            let names = names(*backend, 7, 10 * MINUTE);
            for kind in faults::fitting(*backend) {
                assert!(names.contains(&kind.name), "{backend}: no {}", kind.name);
            }
        }
    }
}
