//! The report as one HTML page that needs nothing else: no network and no script.

use askama::Template;

use super::plots::{Ink, TEXT_STYLE, ink_of, style};
use super::units::duration;
use super::{Latencies, Report, Table, TargetInfo, TargetKind};
use crate::plan::{ContendersAs, Plan};

impl Report {
    /// The report as a page. Everything that others have written, such as names and what servers
    /// say, is escaped.
    ///
    /// # Panics
    ///
    /// Never: a template writes into memory.
    #[must_use]
    pub fn to_html(&self) -> String {
        let page = Page {
            report: self,
            inks: style(),
            text_style: TEXT_STYLE,
            plan: plan(&self.plan),
            targets: self
                .targets
                .iter()
                .map(|target| Target::new(self, target))
                .collect(),
            figures: self.plots().iter().map(Figure::new).collect(),
            tables: self.tables(),
            violations: self.violations(),
            checked_of: self.checked_of(),
            by_chance: self.checked_by_chance(),
            failures: self.failures(),
            json: embedded(&self.to_json().to_string()),
        };
        page.render().expect("BUG: the template writes into memory")
    }

    /// What must not have happened, with where it did; the run has failed if there is anything.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let all = self.series.iter().flat_map(|series| {
            let name = super::name_of(series.workload);
            let at = format!("{name} of {}, {}", series.target, series.parameters);
            let samples = series.samples.iter().flat_map(|sample| &sample.violations);
            samples.map(move |violation| format!("{at}: {violation}"))
        });
        all.collect()
    }

    /// One slice of the time in so many was checked, in the measurement that was checked least.
    fn checked_of(&self) -> u64 {
        let samples = self.series.iter().flat_map(|series| &series.samples);
        samples.map(|sample| sample.checked_of).max().unwrap_or(0)
    }

    /// How many series are such that two holders at a time are seen by chance alone.
    fn checked_by_chance(&self) -> usize {
        let series = self.series.iter();
        let by_chance = series.filter(|series| self.figures(series).is_checked_by_chance);
        by_chance.count()
    }

    /// Series in which no acquisition ever succeeded: what they were to measure is not known, and
    /// the run has failed if there is any.
    #[must_use]
    pub fn without_acquisitions(&self) -> Vec<String> {
        let idle = self.series.iter().filter(|series| {
            let mut samples = series.samples.iter();
            samples.all(|sample| sample.acquisitions == 0)
        });
        let titles = idle.map(|series| {
            let name = super::name_of(series.workload);
            format!("{name} of {}, {}", series.target, series.parameters)
        });
        titles.collect()
    }

    /// What did not work, with where; the figures are those of what did.
    fn failures(&self) -> Vec<String> {
        let all = self.series.iter().filter_map(|series| {
            let name = super::name_of(series.workload);
            let sample = series
                .samples
                .iter()
                .find(|sample| !sample.failures.is_empty())?;
            let first = sample.failures.first()?;
            Some(format!(
                "{name} of {}, {}: {first}",
                series.target, series.parameters
            ))
        });
        let all: Vec<_> = all.collect();
        let more = all.len().saturating_sub(FAILURES);
        let more = (more > 0).then(|| format!("and {more} more; the tables have the numbers"));
        all.into_iter().take(FAILURES).chain(more).collect()
    }
}

/// Failures that are shown.
const FAILURES: usize = 3;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    inks: String,
    text_style: &'static str,
    plan: String,
    targets: Vec<Target<'a>>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
    violations: Vec<String>,
    checked_of: u64,
    by_chance: usize,
    failures: Vec<String>,
    json: String,
}

struct Target<'a> {
    info: &'a TargetInfo,
    class: String,
    is_bare: bool,
    kind: String,
    round_trip: String,
}

impl<'a> Target<'a> {
    fn new(report: &Report, info: &'a TargetInfo) -> Self {
        let kind = match &info.kind {
            TargetKind::Lock { backend } => format!("polylock, {backend}"),
            TargetKind::Bare { of, commands } => format!("bare commands of {of}: {commands}"),
            TargetKind::Peer { library } => library.clone(),
        };
        let ink = ink_of(report, &info.name);
        Self {
            info,
            class: ink.class(),
            is_bare: matches!(ink, Ink::Limit(_)),
            kind,
            round_trip: info
                .round_trip
                .as_ref()
                .and_then(round_trip)
                .unwrap_or_default(),
        }
    }
}

struct Figure {
    name: String,
    title: String,
    caption: String,
    svg: String,
}

impl Figure {
    fn new(plot: &super::Plot) -> Self {
        Self {
            name: plot.name.clone(),
            title: plot.title.clone(),
            caption: plot.caption.clone(),
            svg: plot.to_element(),
        }
    }
}

fn round_trip(times: &Latencies) -> Option<String> {
    let at = |share| times.quantile_ns(share).map(|nanos| duration(nanos as f64));
    Some(format!("{} (99 %: {})", at(0.5)?, at(0.99)?))
}

fn plan(plan: &Plan) -> String {
    let contenders_as = match plan.contenders_as {
        ContendersAs::Processes => "a process each",
        ContendersAs::Tasks => "tasks of one process",
    };
    format!(
        "{} x {} after {} of warm-up, ttl {}, contenders are {contenders_as}, seed {}",
        plan.repeats,
        humantime::format_duration(plan.duration),
        humantime::format_duration(plan.warm_up),
        humantime::format_duration(plan.ttl),
        plan.seed,
    )
}

/// JSON for a script element: nothing in it ends the element or begins a comment.
fn embedded(json: &str) -> String {
    json.replace('<', "\\u003c")
}
