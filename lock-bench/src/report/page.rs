//! The report as one HTML page that needs nothing else: no network and no script.

use askama::Template;
use humantime::format_duration;

use super::figures::COLUMNS;
use super::tables::faults;
use super::units::{duration, number};
use super::{Figures, Plot, Report, Series, Table, TargetInfo};
use crate::plan::{ContendersAs, Plan, WORKLOADS, Workload, name_of};

impl Report {
    /// The report as a page. Everything that others have written, such as names and what servers
    /// say, is escaped.
    ///
    /// # Panics
    ///
    /// Never: a template writes into memory.
    #[must_use]
    pub fn to_html(&self) -> String {
        let samples = self.series.iter().flat_map(|series| &series.samples);
        let by_chance = |series: &&Series| self.figures(series).is_checked_by_chance;
        let conclusions = WORKLOADS.into_iter().filter_map(|w| self.conclusion(w));
        let page = Page {
            report: self,
            plan: plan(&self.plan),
            conclusions: conclusions.collect(),
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

    /// The answer to the question of a workload in one sentence: its best and its worst target. Those
    /// with faults come last, and the sentence has the faults.
    fn conclusion(&self, workload: Workload) -> Option<(&'static str, String)> {
        use Workload::{Contended, HandOff, OpenLoop, Uncontended};
        let (head, is_higher_better, words) = answer(workload);
        let column = COLUMNS.iter().find(|column| column.head == head)?;
        let is_bare = |name: &str| self.target(name).is_some_and(|t| t.bare_of().is_some());
        let value = |figures: &Figures| (column.of)(figures).map(|spread| spread.median);
        let side = self.side(workload, |series| {
            value(&self.figures(series)).is_some() && !is_bare(&series.target)
        });
        let figures = side.iter().map(|series| (*series, self.figures(series)));
        let mut ranked: Vec<_> = figures.collect();
        ranked.sort_by(|(_, a), (_, b)| value(a).partial_cmp(&value(b)).expect(NUMBERS));
        if is_higher_better {
            ranked.reverse();
        }
        ranked.sort_by_key(|(_, figures)| faults(figures).next().is_some());
        // Elsewhere the comparison is not one of what is said.
        let compares = [Uncontended, Contended, HandOff, OpenLoop].contains(&workload);
        let said = |(series, figures): &(&Series, Figures)| {
            let bare = match figures.to_bare.filter(|_| compares) {
                None => String::new(),
                Some(times) if times < 1.0 => {
                    format!(", {} of the time of bare commands", number(times))
                }
                Some(times) => format!(", {} times as long as bare commands", number(times)),
            };
            let words = words.replace("{}", &column.text(value(figures).expect(NUMBERS)));
            let mut said = vec![format!("{} {words}{bare}", series.target)];
            said.extend(faults(figures));
            said.join(", ")
        };
        let (best, rest) = ranked.split_first()?;
        let text = match rest.last() {
            Some(worst) => format!("best: {}; worst: {}", said(best), said(worst)),
            None => said(best),
        };
        let parameters = &best.0.parameters;
        Some((name_of(workload), format!("{text} ({parameters}).")))
    }
}

const NUMBERS: &str = "BUG: series without the figure are left out";

/// The column that answers the question of a workload, whether more is better, and how to say it.
fn answer(workload: Workload) -> (&'static str, bool, &'static str) {
    match workload {
        Workload::Uncontended | Workload::Contended => ("acq/s", true, "{} acquisitions/s"),
        Workload::HandOff => ("hand-off p50", false, "{} without a holder between two"),
        Workload::Fairness => ("min/max", true, "least served has {} of most served"),
        Workload::HoldSweep => ("in use", true, "in use {} of the time"),
        Workload::OpenLoop => ("p99", false, "99 % served within {}"),
        Workload::CrashRecovery => ("recovery p50", false, "free {} after the kill"),
        Workload::Layer | Workload::Http => ("added", false, "adds {} to a request"),
        Workload::Footprint => ("bytes/lock", false, "{} bytes a held lock"),
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    plan: String,
    conclusions: Vec<(&'static str, String)>,
    plots: Vec<Plot>,
    tables: Vec<Table>,
    violations: Vec<String>,
    checked_of: u64,
    by_chance: usize,
    failures: Vec<String>,
    json: String,
}

impl TargetInfo {
    fn round_trips(&self) -> Option<String> {
        let times = self.round_trip.as_ref()?;
        let at = |share| times.quantile_ns(share).map(|nanos| duration(nanos as f64));
        Some(format!("{} (99 %: {})", at(0.5)?, at(0.99)?))
    }
}

fn plan(plan: &Plan) -> String {
    let contenders_as = match plan.contenders_as {
        ContendersAs::Processes => "a process each",
        ContendersAs::Tasks => "tasks of one process",
    };
    let [length, warm_up, ttl] = [plan.duration, plan.warm_up, plan.ttl].map(format_duration);
    format!(
        "{} x {length} after {warm_up} of warm-up, ttl {ttl}, contenders are {contenders_as}, seed {}",
        plan.repeats, plan.seed,
    )
}
