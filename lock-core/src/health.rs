use std::borrow::Cow;
use std::fmt;

/// The result of one check of a server, or of how it is used.
///
/// Displays as `summary: impact; fix`, of which the last two are left out where nothing is wrong.
///
/// # Examples
///
/// [`Registry::check_health`](crate::Registry::check_health) returns them.
///
/// ```
/// use polylock_core::{HealthCheck, Status};
///
/// let checks = [
///     HealthCheck::ok("persistence", "appendonly is yes"),
///     HealthCheck::warning("eviction", "Redis evicts keys", "locks can be lost", "set noeviction"),
/// ];
/// let faults: Vec<_> = checks.iter().filter(|check| check.is_fault()).collect();
/// assert_eq!(faults[0].status, Status::Warning);
/// assert_eq!(faults[0].to_string(), "Redis evicts keys: locks can be lost; set noeviction");
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    /// Name of the check, for programs: lower-case words with hyphens, such as `"eviction"`. The
    /// same check has the same name whatever it finds.
    pub id: &'static str,
    /// How bad it is.
    pub status: Status,
    /// What was found, without secrets.
    pub summary: Cow<'static, str>,
    /// What it means for locks; empty where nothing is wrong.
    pub impact: Cow<'static, str>,
    /// How to fix it; empty where nothing is wrong.
    pub fix: Cow<'static, str>,
}

/// How bad the result of a check is; ordered from good to bad.
///
/// The example of [`HealthCheck`] has one.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Status {
    /// Nothing is wrong.
    Ok,
    /// The server does not tell this user, so nothing is known.
    NotChecked,
    /// Locks work, and may be lost or granted twice.
    Warning,
    /// Locks do not work there.
    Error,
}

/// The status and the summary of a check; `None` if it does not apply.
pub type RuleOutcome = Option<(Status, Cow<'static, str>)>;

/// One entry of a table of health checks, judged by an input of facts.
///
/// Several entries may have one id: each has an impact and a fix of its own.
#[derive(Clone, Copy)]
#[expect(
    clippy::exhaustive_structs,
    reason = "an entry of a table is written out"
)]
pub struct HealthRule<I: ?Sized> {
    /// The name of the check.
    pub id: &'static str,
    /// Judges the input; [`Status::because`] makes the result.
    pub rule: fn(&I) -> RuleOutcome,
    /// The impact where something is wrong.
    pub impact: &'static str,
    /// The fix where something is wrong.
    pub fix: &'static str,
}

impl HealthCheck {
    /// A check that found nothing wrong.
    pub fn ok(id: &'static str, summary: impl Into<Cow<'static, str>>) -> Self {
        Self {
            id,
            status: Status::Ok,
            summary: summary.into(),
            impact: Cow::Borrowed(""),
            fix: Cow::Borrowed(""),
        }
    }

    /// A check that could not be made.
    pub fn not_checked(id: &'static str, summary: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status: Status::NotChecked,
            ..Self::ok(id, summary)
        }
    }

    /// A check that found a risk for safety or availability.
    pub fn warning(
        id: &'static str,
        summary: impl Into<Cow<'static, str>>,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            id,
            status: Status::Warning,
            summary: summary.into(),
            impact: impact.into(),
            fix: fix.into(),
        }
    }

    /// A check that found what makes locks impossible.
    pub fn error(
        id: &'static str,
        summary: impl Into<Cow<'static, str>>,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status: Status::Error,
            ..Self::warning(id, summary, impact, fix)
        }
    }

    /// Whether something is wrong.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        self.status >= Status::Warning
    }

    /// Logs a warning for each fault that a start has found, once where several servers have it.
    ///
    /// # Errors
    ///
    /// With `strict`, the text of all faults if there are any; nothing is logged then.
    pub fn report(checks: &[Self], strict: bool) -> Result<(), String> {
        let mut faults: Vec<&Self> = Vec::new();
        for check in checks.iter().filter(|check| check.is_fault()) {
            if !faults.contains(&check) {
                faults.push(check);
            }
        }
        if strict && !faults.is_empty() {
            let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
            return Err(format!(
                "strict=on refuses this server: {}",
                texts.join(". ")
            ));
        }
        for check in faults {
            tracing::warn!(
                summary = %check.summary,
                impact = %check.impact,
                fix = %check.fix,
                "a server may lose locks"
            );
        }
        Ok(())
    }
}

impl<I: ?Sized> HealthRule<I> {
    /// Judges all entries of a table.
    pub fn check_all(rules: &[Self], input: &I) -> Vec<HealthCheck> {
        let checks = rules.iter().filter_map(|entry| {
            let (status, summary) = (entry.rule)(input)?;
            let mut check = HealthCheck::ok(entry.id, summary);
            check.status = status;
            if check.is_fault() {
                (check.impact, check.fix) = (entry.impact.into(), entry.fix.into());
            }
            Some(check)
        });
        checks.collect()
    }
}

impl<I: ?Sized> fmt::Debug for HealthRule<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HealthRule({})", self.id)
    }
}

impl Status {
    /// The result of a rule, with the facts that it is based on.
    #[must_use]
    pub fn because(self, summary: impl Into<Cow<'static, str>>) -> RuleOutcome {
        Some((self, summary.into()))
    }

    /// Its name for programs: `"ok"`, `"not-checked"`, `"warning"` or `"error"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotChecked => "not-checked",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        if !self.impact.is_empty() {
            write!(f, ": {}", self.impact)?;
        }
        if !self.fix.is_empty() {
            write!(f, "; {}", self.fix)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_what_is_there() {
        let ok = HealthCheck::ok("eviction", "maxmemory-policy is noeviction");
        assert_eq!(ok.to_string(), "maxmemory-policy is noeviction");
        assert!(!ok.is_fault());
        let bad = HealthCheck::warning("eviction", "it evicts", "locks go", "do not");
        assert_eq!(bad.to_string(), "it evicts: locks go; do not");
        assert!(bad.is_fault());
    }

    #[test]
    fn a_status_goes_from_good_to_bad() {
        assert!(Status::Ok < Status::NotChecked);
        assert!(Status::NotChecked < Status::Warning);
        assert!(Status::Warning < Status::Error);
        assert!(!HealthCheck::not_checked("a", "b").is_fault());
    }

    #[test]
    fn faults_refuse_a_server_where_checks_are_strict() {
        let ok = HealthCheck::ok("x", "it is good");
        let bad = HealthCheck::warning("x", "a", "b", "c");
        let worse = HealthCheck::error("y", "d", "e", "f");
        HealthCheck::report(std::slice::from_ref(&ok), true).unwrap();
        HealthCheck::report(&[bad.clone(), worse.clone()], false).unwrap();
        let refusal = HealthCheck::report(&[bad.clone(), ok, bad, worse], true);
        let says = "strict=on refuses this server: a: b; c. d: e; f";
        assert_eq!(refusal, Err(says.to_owned()));
    }

    #[test]
    fn an_entry_has_impact_and_fix_where_something_is_wrong() {
        const RULES: &[HealthRule<u8>] = &[HealthRule {
            id: "small",
            rule: |number| match number {
                0 => None,
                1..5 => Status::Ok.because("few"),
                _ => Status::Warning.because(format!("{number} are many")),
            },
            impact: "impact",
            fix: "fix",
        }];
        assert_eq!(HealthRule::check_all(RULES, &0), []);
        let ok = HealthCheck::ok("small", "few");
        assert_eq!(HealthRule::check_all(RULES, &3), [ok]);
        let wrong = HealthCheck::warning("small", "7 are many", "impact", "fix");
        assert_eq!(HealthRule::check_all(RULES, &7), [wrong]);
    }
}
