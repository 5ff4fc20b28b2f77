//! Which series a picture shows.

use super::ink::Ink;
use super::legend::Legend;
use crate::plan::Workload;
use crate::report::{Parameters, Report, Series, TargetKind};

/// Series of a workload side by side, one for each target, all with the same parameters.
pub(super) struct Side<'a> {
    pub(super) parameters: &'a Parameters,
    pub(super) series: Vec<(&'a Series, Ink)>,
}

/// The series with the most contenders, of those that have what is to be shown.
pub(super) fn most_contended(
    report: &Report,
    workload: Workload,
    has_it: impl Fn(&Series) -> bool,
) -> Option<Side<'_>> {
    let of_it = |series: &&Series| series.workload == workload && has_it(series);
    let chosen = report.series.iter().filter(of_it);
    let chosen = chosen.max_by_key(|series| series.parameters.contenders)?;
    Some(beside(report, chosen, has_it))
}

/// The series with the fewest contenders, of those that have what is to be shown.
pub(super) fn least_contended(
    report: &Report,
    workload: Workload,
    has_it: impl Fn(&Series) -> bool,
) -> Option<Side<'_>> {
    let of_it = |series: &&Series| series.workload == workload && has_it(series);
    let chosen = report.series.iter().filter(of_it);
    let chosen = chosen.min_by_key(|series| series.parameters.contenders)?;
    Some(beside(report, chosen, has_it))
}

fn beside<'a>(
    report: &'a Report,
    chosen: &'a Series,
    has_it: impl Fn(&Series) -> bool,
) -> Side<'a> {
    let parameters = &chosen.parameters;
    let series = report
        .series
        .iter()
        .filter(|s| s.is_beside(chosen) && has_it(s));
    let series = series.map(|s| (s, ink_of(report, &s.target))).collect();
    Side { parameters, series }
}

/// The colour of a target, the same in all pictures; bare commands have that of their target.
pub(crate) fn ink_of(report: &Report, name: &str) -> Ink {
    let number = |name: &str| {
        let is_bare = |kind: &TargetKind| matches!(kind, TargetKind::Bare { .. });
        let own = report
            .targets
            .iter()
            .filter(|target| !is_bare(&target.kind));
        own.map(|target| &target.name).position(|own| own == name)
    };
    match report.target(name).map(|target| &target.kind) {
        Some(TargetKind::Bare { of, .. }) => Ink::Limit(number(of).unwrap_or_default()),
        _ => Ink::Target(number(name).unwrap_or_default()),
    }
}

/// The targets of these series, and one line for all bare commands.
pub(super) fn legend<'a>(series: impl IntoIterator<Item = (&'a Series, Ink)>) -> Legend {
    let mut entries = Vec::new();
    let mut has_limits = false;
    for (series, ink) in series {
        match ink {
            Ink::Limit(_) => has_limits = true,
            ink => entries.push((series.target.clone(), ink)),
        }
    }
    if has_limits {
        entries.push(("bare commands".to_owned(), Ink::Dashes));
    }
    Legend::new(entries)
}
