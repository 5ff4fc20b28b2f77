use crate::error::Cause;

/// What is wrong with a server, or with how it is used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: {why}; {way_out}")]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) why: &'static str,
    pub(super) way_out: &'static str,
    pub(super) weight: Weight,
}

/// What follows from a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Weight {
    /// No lock can be kept there, by the way it is set up.
    Refused,
    /// No lock can be kept there for the time being.
    Unavailable,
    /// A warning, unless checks are strict.
    Warned,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>, why: &'static str, way_out: &'static str) -> Self {
        Self {
            what: what.into(),
            why,
            way_out,
            weight: Weight::Warned,
        }
    }

    pub(super) fn weighing(self, weight: Weight) -> Self {
        Self { weight, ..self }
    }
}

/// Warns of what was found, or refuses.
pub(super) fn report(found: Vec<Finding>, is_strict: bool) -> Result<(), Cause> {
    let is_worst = |finding: &&Finding| finding.weight != Weight::Warned;
    if let Some(worst) = found.iter().find(is_worst) {
        let message = worst.to_string();
        return Err(match worst.weight {
            Weight::Unavailable => Cause::Unfit(message),
            Weight::Refused | Weight::Warned => Cause::Config(message),
        });
    }
    if is_strict && !found.is_empty() {
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        let message = format!("strict=on refuses this server: {}", found.join(". "));
        return Err(Cause::Config(message));
    }
    for Finding {
        what, why, way_out, ..
    } in found
    {
        tracing::warn!(%what, why, way_out, "a server is not fit for locks");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_refuse_where_checks_are_strict() {
        let finding = Finding::new("a", "b", "c");
        report(vec![finding.clone()], false).unwrap();
        let error = report(vec![finding.clone(), finding.clone()], true).unwrap_err();
        let says = "strict=on refuses this server: a: b; c. a: b; c";
        assert_eq!(error.to_string(), says);

        let refused = finding.clone().weighing(Weight::Refused);
        let error = report(vec![finding.clone(), refused], false).unwrap_err();
        assert!(matches!(error, Cause::Config(says) if says == "a: b; c"));
        let error = report(vec![finding.weighing(Weight::Unavailable)], false).unwrap_err();
        assert!(matches!(error, Cause::Unfit(_)));
    }
}
