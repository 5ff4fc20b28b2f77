use lock_core::{HealthCheck, Status};

use crate::error::Cause;

/// The finding of a check, and what it means at startup.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Found {
    pub(super) health: HealthCheck,
    /// Whether an error may be over by itself, as that of a server which takes no writes for now.
    pub(super) passes: bool,
}

impl Found {
    pub(super) fn passing(health: HealthCheck) -> Self {
        Self {
            health,
            passes: true,
        }
    }
}

impl From<HealthCheck> for Found {
    fn from(health: HealthCheck) -> Self {
        Self {
            health,
            passes: false,
        }
    }
}

/// What is wrong, or else that nothing is.
pub(super) fn faults_or(faults: Vec<Found>, good: impl FnOnce() -> HealthCheck) -> Vec<Found> {
    match faults.is_empty() {
        true => vec![good().into()],
        false => faults,
    }
}

/// Warns of what is wrong, or refuses.
pub(super) fn report(found: &[Found], is_strict: bool) -> Result<(), Cause> {
    let faults = || found.iter().filter(|found| found.health.is_fault());
    if let Some(worst) = faults().find(|found| found.health.status == Status::Error) {
        let message = worst.health.to_string();
        return Err(match worst.passes {
            true => Cause::Unfit(message),
            false => Cause::Config(message),
        });
    }
    if is_strict && faults().next().is_some() {
        let faults: Vec<_> = faults().map(|found| found.health.to_string()).collect();
        let message = format!("strict=on refuses this server: {}", faults.join(". "));
        return Err(Cause::Config(message));
    }
    for Found { health, .. } in faults() {
        let HealthCheck {
            summary,
            impact,
            fix,
            ..
        } = health;
        tracing::warn!(%summary, %impact, %fix, "a server may lose locks");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_refuse_where_checks_are_strict() {
        let good = Found::from(HealthCheck::ok("x", "it is good"));
        let warning = Found::from(HealthCheck::warning("x", "a", "b", "c"));
        report(std::slice::from_ref(&good), true).unwrap();
        report(std::slice::from_ref(&warning), false).unwrap();
        let error = report(&[warning.clone(), good, warning.clone()], true).unwrap_err();
        let says = "strict=on refuses this server: a: b; c. a: b; c";
        assert_eq!(error.to_string(), says);

        let worse = HealthCheck::error("x", "a", "b", "c");
        let error = report(&[warning, worse.clone().into()], false).unwrap_err();
        assert!(matches!(error, Cause::Config(says) if says == "a: b; c"));
        let error = report(&[Found::passing(worse)], false).unwrap_err();
        assert!(matches!(error, Cause::Unfit(_)));
    }
}
