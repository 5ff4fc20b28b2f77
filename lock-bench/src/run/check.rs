use std::time::Duration;

use crate::plan::Plan;
use crate::subject::{Failure, INVALID};
use crate::target::Target;

/// Says what of a plan cannot be carried out.
pub(super) fn check(plan: &Plan, targets: &[Target]) -> Result<(), Failure> {
    let wrong = |what: String| Err(Failure::new(INVALID, what));
    if targets.is_empty() {
        return wrong("there is no target".to_owned());
    }
    for (at, target) in targets.iter().enumerate() {
        if targets[..at].iter().any(|other| other.name == target.name) {
            return wrong(format!("two targets have the name {:?}", target.name));
        }
    }
    if plan.workloads.is_empty() {
        return wrong("there is no workload".to_owned());
    }
    let in_range = |contenders: &u32| (1..=MOST_CONTENDERS).contains(contenders);
    if plan.contenders.is_empty() || !plan.contenders.iter().all(in_range) {
        return wrong(format!(
            "there are between 1 and {MOST_CONTENDERS} contenders"
        ));
    }
    if plan.repeats == 0 || plan.repeats > MOST_REPEATS {
        return wrong(format!("there are between 1 and {MOST_REPEATS} repeats"));
    }
    if plan.duration < Duration::from_millis(10) || plan.duration > LONGEST {
        return wrong("a measurement takes between 10ms and 1h".to_owned());
    }
    if plan.warm_up > LONGEST {
        return wrong("a warm-up takes at most 1h".to_owned());
    }
    if plan.hold > plan.duration {
        return wrong("a hold is shorter than the measurement".to_owned());
    }
    if !(plan.rate > 0.0 && plan.rate <= MOST_PER_SECOND) {
        return wrong(format!(
            "the rate is more than 0 and at most {MOST_PER_SECOND} per second"
        ));
    }
    Ok(())
}

const MOST_CONTENDERS: u32 = 10_000;
const MOST_REPEATS: u32 = 1_000;
const LONGEST: Duration = Duration::from_secs(60 * 60);
const MOST_PER_SECOND: f64 = 1e6;
