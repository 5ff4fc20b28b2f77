//! What is known of one lock service in the end.

use polylock::{Finding, Verdict};

use super::round_trip::RoundTrips;
use super::terms::Advice;

/// All that was found at one lock service.
#[derive(Debug)]
pub(super) struct Report {
    /// The URL without secrets.
    pub(super) url: String,
    /// Its kind, such as `redis`; none if the URL does not say.
    pub(super) backend: Option<String>,
    pub(super) entries: Vec<Entry>,
    pub(super) round_trips: Option<RoundTrips>,
    pub(super) advice: Option<Advice>,
}

/// A finding, and whether its reader has said that it is known.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) finding: Finding,
    pub(super) is_accepted: bool,
}

impl Report {
    pub(super) fn new(url: String, backend: Option<String>) -> Self {
        Self {
            url,
            backend,
            entries: Vec::new(),
            round_trips: None,
            advice: None,
        }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.entries.push(Entry {
            finding,
            is_accepted: false,
        });
    }

    /// Adds what was found of the way to the server, before what it said.
    pub(super) fn add_to_the_way(&mut self, finding: Finding) {
        let is_of_the_way = |entry: &Entry| entry.finding.check == "reach";
        let at = self
            .entries
            .iter()
            .rposition(is_of_the_way)
            .map_or(0, |at| at + 1);
        let entry = Entry {
            finding,
            is_accepted: false,
        };
        self.entries.insert(at, entry);
    }

    /// Adds an error, unless the same check has said that something is wrong.
    pub(super) fn add_once(&mut self, finding: Finding) {
        let same = |entry: &Entry| entry.finding.check == finding.check && entry.finding.is_fault();
        if !self.entries.iter().any(same) {
            self.add(finding);
        }
    }

    /// Whether a check is there, whatever it shows.
    pub(super) fn has(&self, check: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.finding.check == check)
    }

    pub(super) fn has_error(&self) -> bool {
        self.count(Verdict::Error) > 0
    }

    /// Takes warnings of these checks for known. Not errors: who accepts a risk does not mean that
    /// nothing works.
    pub(super) fn accept(&mut self, checks: &[String]) {
        for entry in &mut self.entries {
            let is_named = checks.iter().any(|name| name == entry.finding.check);
            entry.is_accepted = is_named && entry.finding.verdict == Verdict::Warning;
        }
    }

    pub(super) fn has_accepted(&self, check: &str) -> bool {
        let accepted = |entry: &Entry| entry.is_accepted && entry.finding.check == check;
        self.entries.iter().any(accepted)
    }

    /// How many findings of this verdict nobody has accepted.
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        let counts = |entry: &&Entry| entry.finding.verdict == verdict && !entry.is_accepted;
        self.entries.iter().filter(counts).count()
    }

    pub(super) fn has_fault(&self) -> bool {
        self.verdict() != Verdict::Good
    }

    /// The worst of what nobody has accepted; what is not known is no fault.
    pub(super) fn verdict(&self) -> Verdict {
        let faults = self.entries.iter().filter(|entry| !entry.is_accepted);
        let faults = faults.filter(|entry| entry.finding.is_fault());
        let worst = faults.map(|entry| entry.finding.verdict).max();
        worst.unwrap_or(Verdict::Good)
    }
}

/// Where a check is explained.
pub(super) fn link(check: &str) -> String {
    format!(
        "{}/blob/main/docs/doctor.md#{check}",
        env!("CARGO_PKG_REPOSITORY")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: impl IntoIterator<Item = Finding>) -> Report {
        let mut report = Report::new("memory:".to_owned(), None);
        findings.into_iter().for_each(|finding| report.add(finding));
        report
    }

    #[test]
    fn the_verdict_is_the_worst_of_what_is_not_accepted() {
        let warning = || Finding::warning("flush", "a", "b", "c");
        let error = || Finding::error("reach", "a", "b", "c");
        let unknown = || Finding::unknown("clock", "a");
        assert_eq!(report([unknown()]).verdict(), Verdict::Good);
        assert_eq!(report([warning(), unknown()]).verdict(), Verdict::Warning);
        assert_eq!(report([error(), warning()]).verdict(), Verdict::Error);

        let mut known = report([warning(), Finding::good("login", "a")]);
        known.accept(&["flush".to_owned(), "login".to_owned()]);
        assert_eq!(known.verdict(), Verdict::Good);
        assert!(known.has_accepted("flush") && !known.has_accepted("login"));
    }

    #[test]
    fn an_error_is_not_accepted() {
        let mut report = report([Finding::error("reach", "a", "b", "c")]);
        report.accept(&["reach".to_owned()]);
        assert!(report.has_fault() && !report.has_accepted("reach"));
    }

    #[test]
    fn a_check_says_once_that_something_is_wrong() {
        let mut report = report([
            Finding::good("rights", "x"),
            Finding::warning("flush", "a", "", ""),
        ]);
        report.add_once(Finding::error("rights", "a", "b", "c"));
        report.add_once(Finding::error("rights", "d", "e", "f"));
        report.add_once(Finding::error("flush", "d", "e", "f"));
        report.add_to_the_way(Finding::good("login", "x"));
        let checks: Vec<_> = report
            .entries
            .iter()
            .map(|entry| entry.finding.check)
            .collect();
        assert_eq!(checks, ["login", "rights", "flush", "rights"]);
    }
}
