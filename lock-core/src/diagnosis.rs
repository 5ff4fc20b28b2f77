use std::borrow::Cow;
use std::fmt;

/// What one check of a server, or of how it is used, has shown.
///
/// Displays as `what: why; way_out`, of which the last two are left out where nothing is wrong.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Name of the check, for programs: lower-case words with hyphens, such as `"eviction"`. The
    /// same check has the same name whatever it shows.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found, without secrets.
    pub what: Cow<'static, str>,
    /// What it means for locks; empty where nothing is wrong.
    pub why: Cow<'static, str>,
    /// What to do about it; empty where nothing is wrong.
    pub way_out: Cow<'static, str>,
}

/// How bad a finding is; ordered from good to bad.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Verdict {
    /// Nothing is wrong.
    Good,
    /// The server does not answer this user, so the state is unknown.
    Unknown,
    /// Locks work, and may be lost or broken where they need not be.
    Warning,
    /// Locks do not work there.
    Error,
}

impl Finding {
    /// A check that found nothing wrong.
    pub fn good(check: &'static str, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            check,
            verdict: Verdict::Good,
            what: what.into(),
            why: Cow::Borrowed(""),
            way_out: Cow::Borrowed(""),
        }
    }

    /// A check that could not be made.
    pub fn unknown(check: &'static str, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verdict: Verdict::Unknown,
            ..Self::good(check, what)
        }
    }

    /// A check that found what costs safety or availability.
    pub fn warning(
        check: &'static str,
        what: impl Into<Cow<'static, str>>,
        why: impl Into<Cow<'static, str>>,
        way_out: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            check,
            verdict: Verdict::Warning,
            what: what.into(),
            why: why.into(),
            way_out: way_out.into(),
        }
    }

    /// A check that found what makes locks impossible.
    pub fn error(
        check: &'static str,
        what: impl Into<Cow<'static, str>>,
        why: impl Into<Cow<'static, str>>,
        way_out: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            verdict: Verdict::Error,
            ..Self::warning(check, what, why, way_out)
        }
    }

    /// Whether something is wrong.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        self.verdict >= Verdict::Warning
    }
}

impl Verdict {
    /// Its name in lower case, for programs: `"good"`, `"unknown"`, `"warning"` or `"error"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        if !self.way_out.is_empty() {
            write!(f, "; {}", self.way_out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_there() {
        let good = Finding::good("eviction", "maxmemory-policy is noeviction");
        assert_eq!(good.to_string(), "maxmemory-policy is noeviction");
        assert!(!good.is_fault());
        let bad = Finding::warning("eviction", "it evicts", "locks go", "do not");
        assert_eq!(bad.to_string(), "it evicts: locks go; do not");
        assert!(bad.is_fault());
    }

    #[test]
    fn verdicts_go_from_good_to_bad() {
        assert!(Verdict::Good < Verdict::Unknown);
        assert!(Verdict::Unknown < Verdict::Warning);
        assert!(Verdict::Warning < Verdict::Error);
        assert!(!Finding::unknown("a", "b").is_fault());
    }
}
