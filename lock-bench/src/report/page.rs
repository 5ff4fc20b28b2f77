//! The report as one HTML page that needs nothing else: no network and no script.

use askama::Template;

use super::plots::{hex, is_dashed, style_sheet};
use super::units::{duration, number};
use super::{Figures, Plot, Report, Series, Table, TargetInfo, TargetKind, name_of};
use crate::plan::{ContendersAs, Plan, WORKLOADS, Workload};

impl Report {
    /// The report as a page. Everything that others have written, such as names and what servers
    /// say, is escaped.
    ///
    /// # Panics
    ///
    /// Never: a template writes into memory.
    #[must_use]
    pub fn to_html(&self) -> String {
        let targets = self.targets.iter().map(|info| Target::new(self, info));
        let samples = self.series.iter().flat_map(|series| &series.samples);
        let by_chance = |series: &&Series| self.figures(series).is_checked_by_chance;
        let conclusions = WORKLOADS.into_iter().filter_map(|w| self.conclusion(w));
        let page = Page {
            report: self,
            style: style_sheet(),
            plan: plan(&self.plan),
            conclusions: conclusions.collect(),
            targets: targets.collect(),
            plots: self.plots(),
            tables: self.tables(),
            violations: self.violations(),
            checked_of: samples.map(|s| s.checked_of).max().unwrap_or(0),
            by_chance: self.series.iter().filter(by_chance).count(),
            failures: self.failures(),
            // Nothing in it ends the script element or begins a comment.
            json: self.to_json().to_string().replace('<', "\\u003c"),
        };
        page.render().expect("BUG: the template writes into memory")
    }

    /// The answer to the question of a workload in one sentence: its best and its worst target.
    fn conclusion(&self, workload: Workload) -> Option<(&'static str, String)> {
        let (figure, is_higher_better, words): (Figure, bool, fn(f64) -> String) = match workload {
            Workload::Uncontended | Workload::Contended => (
                |f| f.throughput,
                true,
                |value| format!("{} acquisitions/s", number(value)),
            ),
            Workload::HandOff => (
                |f| Some(f.hand_off?.p50),
                false,
                |value| format!("{} without a holder between two", duration(value)),
            ),
            Workload::Fairness => (
                |f| f.least_share,
                true,
                |value| format!("least served has {:.0} % of most served", value * 100.0),
            ),
            Workload::HoldSweep => (
                |f| f.efficiency,
                true,
                |value| format!("in use {:.0} % of the time", value * 100.0),
            ),
            Workload::OpenLoop => (
                |f| Some(f.acquire?.p99),
                false,
                |value| format!("99 % served within {}", duration(value)),
            ),
            Workload::CrashRecovery => (
                |f| f.recovery,
                false,
                |value| format!("free {} after the kill", duration(value)),
            ),
            Workload::Layer => (
                |f| f.layer_adds,
                false,
                |value| format!("adds {} to a request", duration(value)),
            ),
            Workload::Footprint => (
                |f| f.held_bytes,
                false,
                |value| format!("{} bytes a held lock", number(value)),
            ),
        };
        let is_bare = |name: &str| {
            let kind = self.target(name).map(|target| &target.kind);
            matches!(kind, Some(TargetKind::Bare { .. }))
        };
        let side = self.side(workload, |s| {
            figure(&self.figures(s)).is_some() && !is_bare(&s.target)
        });
        let mut ranked: Vec<_> = side
            .iter()
            .map(|series| (series, self.figures(series)))
            .collect();
        let value = |figures: &Figures| figure(figures).map_or(f64::NAN, |spread| spread.median);
        ranked.sort_by(|(_, a), (_, b)| value(a).total_cmp(&value(b)));
        if is_higher_better {
            ranked.reverse();
        }
        // Elsewhere the comparison is not one of what is said.
        let compares = matches!(
            workload,
            Workload::Uncontended | Workload::Contended | Workload::HandOff | Workload::OpenLoop
        );
        let said = |(series, figures): &(&&Series, Figures)| {
            let bare = figures
                .to_bare
                .filter(|_| compares)
                .map(|times| match times {
                    times if times < 1.0 => {
                        format!(", {} of the time of bare commands", number(times))
                    }
                    times => format!(", {} times as long as bare commands", number(times)),
                });
            let words = words(value(figures));
            format!("{} {words}{}", series.target, bare.unwrap_or_default())
        };
        let (best, rest) = ranked.split_first()?;
        let text = match rest.last() {
            Some(worst) => format!("best: {}; worst: {}", said(best), said(worst)),
            None => said(best),
        };
        Some((
            name_of(workload),
            format!("{text} ({}).", best.0.parameters),
        ))
    }
}

type Figure = fn(&Figures) -> Option<super::Spread>;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    style: String,
    plan: String,
    conclusions: Vec<(&'static str, String)>,
    targets: Vec<Target<'a>>,
    plots: Vec<Plot>,
    tables: Vec<Table>,
    violations: Vec<String>,
    checked_of: u64,
    by_chance: usize,
    failures: Vec<String>,
    json: String,
}

struct Target<'a> {
    info: &'a TargetInfo,
    color: String,
    is_bare: bool,
    kind: String,
    round_trip: String,
}

impl<'a> Target<'a> {
    fn new(report: &Report, info: &'a TargetInfo) -> Self {
        let color = report.color(&info.name);
        let round_trip = info.round_trip.as_ref().and_then(|times| {
            let at = |share| times.quantile_ns(share).map(|nanos| duration(nanos as f64));
            Some(format!("{} (99 %: {})", at(0.5)?, at(0.99)?))
        });
        Self {
            info,
            color: hex(color),
            is_bare: is_dashed(color),
            kind: match &info.kind {
                TargetKind::Lock { backend } => format!("polylock, {backend}"),
                TargetKind::Bare { of, commands } => format!("bare commands of {of}: {commands}"),
                TargetKind::Peer { library } => library.clone(),
            },
            round_trip: round_trip.unwrap_or_default(),
        }
    }
}

fn plan(plan: &Plan) -> String {
    let contenders_as = match plan.contenders_as {
        ContendersAs::Processes => "a process each",
        ContendersAs::Tasks => "tasks of one process",
    };
    let [length, warm_up, ttl] =
        [plan.duration, plan.warm_up, plan.ttl].map(humantime::format_duration);
    format!(
        "{} x {length} after {warm_up} of warm-up, ttl {ttl}, contenders are {contenders_as}, seed {}",
        plan.repeats, plan.seed,
    )
}
