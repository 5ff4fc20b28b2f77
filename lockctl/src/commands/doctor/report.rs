//! The results of all checks of one lock service.

use polylock::{HealthCheck, Status};

use super::round_trip::RoundTrips;
use super::timing::Advice;

/// All results of one lock service.
#[derive(Debug)]
pub(super) struct Report {
    /// The URL without secrets.
    pub(super) url: String,
    /// Its scheme; none if the URL cannot be read.
    pub(super) backend: Option<String>,
    pub(super) entries: Vec<Entry>,
    pub(super) round_trips: Option<RoundTrips>,
    pub(super) advice: Option<Advice>,
}

/// A result, and whether the user accepts it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) check: HealthCheck,
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

    pub(super) fn add(&mut self, check: HealthCheck) {
        self.entries.push(Entry {
            check,
            is_accepted: false,
        });
    }

    pub(super) fn has_error(&self) -> bool {
        self.count(Status::Error) > 0
    }

    /// Accepts warnings of these checks. Not errors: an accepted risk is not a lock that fails.
    pub(super) fn accept(&mut self, ids: &[String]) {
        for Entry { check, is_accepted } in &mut self.entries {
            *is_accepted = ids.iter().any(|id| id == check.id) && check.status == Status::Warning;
        }
    }

    pub(super) fn has_accepted(&self, id: &str) -> bool {
        let accepted = |entry: &Entry| entry.is_accepted && entry.check.id == id;
        self.entries.iter().any(accepted)
    }

    /// How many results of this status are not accepted.
    pub(super) fn count(&self, status: Status) -> usize {
        let counts = |entry: &&Entry| entry.check.status == status && !entry.is_accepted;
        self.entries.iter().filter(counts).count()
    }

    pub(super) fn not_checked(&self) -> impl Iterator<Item = &HealthCheck> {
        let checks = self.entries.iter().map(|entry| &entry.check);
        checks.filter(|check| check.status == Status::NotChecked)
    }

    pub(super) fn has_fault(&self) -> bool {
        self.status() != Status::Ok
    }

    /// The worst result that is not accepted; what was not checked is no fault.
    pub(super) fn status(&self) -> Status {
        let faults = self.entries.iter().filter(|entry| !entry.is_accepted);
        let faults = faults.filter(|entry| entry.check.is_fault());
        let worst = faults.map(|entry| entry.check.status).max();
        worst.unwrap_or(Status::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: impl IntoIterator<Item = HealthCheck>) -> Report {
        let mut report = Report::new("memory:".to_owned(), None);
        checks.into_iter().for_each(|check| report.add(check));
        report
    }

    #[test]
    fn the_status_is_the_worst_of_what_is_not_accepted() {
        let warning = || HealthCheck::warning("flush", "a", "b", "c");
        let error = || HealthCheck::error("connect", "a", "b", "c");
        let unknown = || HealthCheck::not_checked("clock", "a");
        assert_eq!(report([unknown()]).status(), Status::Ok);
        assert_eq!(report([warning(), unknown()]).status(), Status::Warning);
        assert_eq!(report([error(), warning()]).status(), Status::Error);

        let mut known = report([warning(), HealthCheck::ok("version", "a")]);
        known.accept(&["flush".to_owned(), "version".to_owned()]);
        assert_eq!(known.status(), Status::Ok);
        assert!(known.has_accepted("flush") && !known.has_accepted("version"));
    }

    #[test]
    fn an_error_is_not_accepted() {
        let mut report = report([HealthCheck::error("connect", "a", "b", "c")]);
        report.accept(&["connect".to_owned()]);
        assert!(report.has_fault() && !report.has_accepted("connect"));
    }
}
