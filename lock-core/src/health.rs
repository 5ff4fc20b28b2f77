use std::borrow::Cow;
use std::fmt;

/// The result of one check of a server, or of how it is used.
///
/// Displays as `summary: impact; fix`, of which the last two are left out where nothing is wrong.
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

/// What a rule finds: a status with its summary; `None` if the rule does not apply.
pub type Judgment = Option<(Status, Cow<'static, str>)>;

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
    /// The status and the summary; `None` if the entry does not apply.
    pub rule: fn(&I) -> Judgment,
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
    fn an_entry_has_impact_and_fix_where_something_is_wrong() {
        const RULES: &[HealthRule<u8>] = &[HealthRule {
            id: "small",
            rule: |number| match number {
                0 => None,
                1..5 => Some((Status::Ok, "few".into())),
                _ => Some((Status::Warning, format!("{number} are many").into())),
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
