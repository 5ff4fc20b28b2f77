//! What a series amounts to: figures for people and for limits, from the raw samples.

use serde::Serialize;

use super::units::{duration, number};
use super::{Footprint, Latencies, Parameters, Report, Sample, Series};
use crate::plan::Workload;

/// The figures of one series; none where it has not measured that.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Acquisitions per second of all contenders together.
    pub throughput: Option<Spread>,
    /// From the request to the acquisition, in nanoseconds.
    pub acquire: Option<Quantiles>,
    /// From the call of release to its end, in nanoseconds.
    pub release: Option<Quantiles>,
    /// From the call of release to the acquisition of the next contender, in nanoseconds.
    pub hand_off: Option<Quantiles>,
    /// The median of `acquire` in round trips of the target.
    pub acquire_round_trips: Option<f64>,
    /// The median of `hand_off` in round trips of the target.
    pub hand_off_round_trips: Option<f64>,
    /// The time of acquire and release of a free lock, in round trips of the target.
    pub pair_round_trips: Option<f64>,
    /// The time divided by that of the bare commands on the same server: of hand-offs and the open
    /// loop the latency, elsewhere the time per acquisition.
    pub to_bare: Option<f64>,
    /// Share of the time in which a contender had the lock.
    pub efficiency: Option<Spread>,
    /// Jain's index of the acquisitions of the contenders: 1 if all have the same number, and one
    /// divided by the number of contenders if one has them all.
    pub jain: Option<Spread>,
    /// Acquisitions of the contender that has least, divided by those of the one that has most.
    pub least_share: Option<Spread>,
    /// Later requests that were served before an earlier one, per acquisition.
    pub overtakes: Option<Spread>,
    /// Commands that the server counted, per acquisition.
    pub commands: Option<Spread>,
    /// From the kill of a holder to the next acquisition, in nanoseconds, over all kills; a lower
    /// bound for those that `unserved` counts.
    pub recovery: Option<Spread>,
    /// What the layer adds to the median time of a request, in nanoseconds.
    pub layer_adds: Option<Spread>,
    /// Memory of a held lock, in bytes.
    pub held_bytes: Option<Spread>,
    /// Memory of a waiting task, in bytes.
    pub waiting_bytes: Option<Spread>,
    /// Commands that the server counted for each third of a ttl, while locks were held.
    pub renewal_commands: Option<Spread>,
    /// Processors that the client used while locks were held.
    pub renewal_processors: Option<Spread>,
    /// Acquisitions in all repeats.
    pub acquisitions: u64,
    /// Repeats without an acquisition: `throughput` counts them as 0, and the other figures are those
    /// of the rest.
    pub empty_repeats: u64,
    /// Failures in all repeats.
    pub errors: u64,
    /// Violations in all repeats; any makes the run fail.
    pub violations: u64,
    /// The greatest [`checked_of`](Sample::checked_of).
    pub checked_of: u64,
    /// Whether two holders at a time are seen by chance alone: contenders shared keys without tokens
    /// and held them for no time.
    pub is_checked_by_chance: bool,
    /// The sum of [`unserved`](Sample::unserved).
    pub unserved: u64,
    /// Whether a repeat of the open loop fell behind for good.
    pub is_saturated: bool,
    /// Whether the client used more than four fifths of the processors: then the figures are its
    /// own.
    pub is_of_the_client: bool,
}

/// The median over the repeats, with the least and the greatest of them.
///
/// With an even number of repeats the median is the smaller of the two in the middle: what is shown
/// was measured, and percentiles are not averaged.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// Quantiles of durations in nanoseconds: of each repeat its own, and then their median.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of the durations are not longer.
    pub p50: Spread,
    /// 99 % are not longer.
    pub p99: Spread,
    /// 99.9 % are not longer.
    pub p999: Spread,
}

/// A figure for people: a column of tables, and a metric of comparisons if it has a name there.
#[derive(Debug)]
pub(super) struct FigureColumn {
    pub(super) head: &'static str,
    pub(super) metric: &'static str,
    unit: Unit,
    pub(super) of: fn(&Figures) -> Option<Spread>,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Nanoseconds,
    Number,
    Percent,
    Permille,
    Share,
}

/// What answers the question of a workload comes first.
pub(super) static COLUMNS: [FigureColumn; 22] = {
    use Unit::{Nanoseconds as Ns, Number, Percent, Permille, Share};
    type Of = fn(&Figures) -> Option<Spread>;
    const fn column(head: &'static str, metric: &'static str, unit: Unit, of: Of) -> FigureColumn {
        FigureColumn {
            head,
            metric,
            unit,
            of,
        }
    }
    [
        column("acq/s", "throughput", Number, |f| f.throughput),
        column("time/bare", "", Number, |f| Spread::of(f.to_bare)),
        column("hand-off p50", "hand-off", Ns, |f| Some(f.hand_off?.p50)),
        column("hand-off p99", "hand-off-p99", Ns, |f| {
            Some(f.hand_off?.p99)
        }),
        column("in use", "efficiency", Percent, |f| f.efficiency),
        column("acquire p50", "p50", Ns, |f| Some(f.acquire?.p50)),
        column("p99", "p99", Ns, |f| Some(f.acquire?.p99)),
        column("p99.9", "p99.9", Ns, |f| Some(f.acquire?.p999)),
        column("cmds/acq", "commands", Number, |f| f.commands),
        column("Jain", "jain", Share, |f| f.jain),
        column("min/max", "", Share, |f| f.least_share),
        column("overtakes", "overtakes", Share, |f| f.overtakes),
        column("pair rt", "", Number, |f| Spread::of(f.pair_round_trips)),
        column("acquire rt", "", Number, |f| {
            Spread::of(f.acquire_round_trips)
        }),
        column("hand-off rt", "", Number, |f| {
            Spread::of(f.hand_off_round_trips)
        }),
        column("recovery p50", "recovery", Ns, |f| f.recovery),
        column("recovery max", "", Ns, |f| Spread::of([f.recovery?.max])),
        column("added", "layer", Ns, |f| f.layer_adds),
        column("bytes/lock", "", Number, |f| f.held_bytes),
        column("bytes/waiter", "", Number, |f| f.waiting_bytes),
        column("cmds/renewal", "", Number, |f| f.renewal_commands),
        column("processor", "", Permille, |f| f.renewal_processors),
    ]
};

impl FigureColumn {
    pub(super) fn metrics() -> impl Iterator<Item = &'static Self> {
        COLUMNS.iter().filter(|column| !column.metric.is_empty())
    }

    /// A value with its unit.
    pub(super) fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::Nanoseconds => duration(value),
            Unit::Number => number(value),
            Unit::Percent => format!("{:.0} %", value * 100.0),
            Unit::Permille => format!("{:.1} %", value * 100.0),
            Unit::Share => format!("{value:.2}"),
        }
    }

    /// Least and greatest, if they differ.
    pub(super) fn range(&self, spread: Option<Spread>) -> String {
        let spread = spread.filter(|spread| spread.min != spread.max);
        let range = |s: Spread| format!("{}..{}", self.text(s.min), self.text(s.max));
        spread.map(range).unwrap_or_default()
    }
}

impl Report {
    /// Computes the figures of one of the series of this report.
    #[must_use]
    pub fn figures(&self, series: &Series) -> Figures {
        let cores = self.environment.cores;
        let mut figures = Figures::of(series, cores);
        let round_trip = self.round_trip_ns(&series.target);
        let in_round_trips = |ns: Option<f64>| Some(ns? / round_trip?);
        let median = |quantiles: Option<Quantiles>| Some(quantiles?.p50.median);
        figures.acquire_round_trips = in_round_trips(median(figures.acquire));
        figures.hand_off_round_trips = in_round_trips(median(figures.hand_off));
        if series.workload == Workload::Uncontended {
            figures.pair_round_trips = in_round_trips(figures.time_per_acquisition(series));
        }
        figures.to_bare = self
            .bare_of(series)
            .and_then(|limit| Some(figures.cost(series)? / Figures::of(limit, cores).cost(limit)?));
        figures
    }

    /// The bare commands on the same server with the same parameters, if they were measured.
    fn bare_of(&self, series: &Series) -> Option<&Series> {
        let mut targets = self.targets.iter();
        let limit = targets.find(|target| target.bare_of() == Some(&series.target))?;
        let mut others = self.series.iter();
        others.find(|other| other.target == limit.name && other.is_beside(series))
    }

    /// The median round trip to a target; for bare commands without one, that of their target.
    fn round_trip_ns(&self, target: &str) -> Option<f64> {
        let target = self.target(target)?;
        let lent = target.bare_of().and_then(|of| self.target(of));
        let own = target.round_trip.as_ref();
        let times = own.or_else(|| lent?.round_trip.as_ref());
        times?.quantile_ns(0.5).map(float)
    }
}

impl Figures {
    fn of(series: &Series, cores: u32) -> Self {
        use Workload::{CrashRecovery, Footprint as Held, Http, Layer, OpenLoop, Uncontended};
        let (samples, workload) = (&series.samples, series.workload);
        let total = |count: fn(&Sample) -> u64| samples.iter().map(count).sum();
        // Fairness is measured among contenders for the same key.
        let is_alone =
            [Uncontended, OpenLoop, CrashRecovery, Layer, Http, Held].contains(&workload);
        let is_shared = series.parameters.contenders > 1 && !is_alone;
        let is_footprint = workload == Held;
        let all = |figure: fn(&Sample) -> Option<f64>| spread(series, figure);
        let only = |is_it: bool, figure| is_it.then(|| all(figure)).flatten();
        let footprint = |figure: fn(&Footprint) -> u64| {
            let all = samples.iter().filter_map(|s| s.footprint.as_ref());
            Spread::of(all.map(|f| float(figure(f)) / float(f.locks.max(1))))
        };
        let periods_per_ns = 3.0 / (float(series.parameters.ttl_ms) * 1e6);
        let per_period = |sample: &Sample| {
            let commands = sample.commands.filter(|_| is_footprint)?;
            Some(float(commands) / (float(sample.duration_ns) * periods_per_ns))
        };
        let recoveries = samples.iter().flat_map(|s| &s.recovery_ns);
        let by_chance = |s: &Sample| s.with_token == Some(0) && s.acquisitions > 0;
        let is_busy = |s: &Sample| s.client_processors > 0.8 * f64::from(cores.max(1));
        Self {
            // The kills of a crash recovery come one after the other, at the pace of the benchmark.
            throughput: match workload {
                CrashRecovery | Held => None,
                _ => throughput(samples),
            },
            acquire: Quantiles::of(series, |sample| &sample.acquire),
            release: Quantiles::of(series, |sample| &sample.release),
            hand_off: Quantiles::of(series, |sample| &sample.hand_off),
            acquire_round_trips: None,
            hand_off_round_trips: None,
            pair_round_trips: None,
            to_bare: None,
            efficiency: efficiency(series, is_shared),
            jain: only(is_shared, |sample| jain(&sample.per_contender)),
            least_share: only(is_shared, |sample| least_share(&sample.per_contender)),
            overtakes: only(is_shared, |s| per_acquisition(s, s.overtakes)),
            commands: only(!is_footprint, |s| per_acquisition(s, s.commands?)),
            recovery: Spread::of(recoveries.copied().map(float)),
            layer_adds: all(layer_adds),
            held_bytes: footprint(|footprint| footprint.held_bytes),
            waiting_bytes: footprint(|footprint| footprint.waiting_bytes),
            renewal_commands: Spread::of(samples.iter().filter_map(per_period)),
            renewal_processors: only(is_footprint, |sample| Some(sample.client_processors)),
            acquisitions: total(|sample| sample.acquisitions),
            empty_repeats: total(|sample| u64::from(sample.acquisitions == 0)),
            errors: total(|sample| sample.errors.values().sum()),
            violations: total(|sample| sample.violations.len() as u64),
            checked_of: samples.iter().map(|s| s.checked_of).max().unwrap_or(0),
            is_checked_by_chance: (is_shared || workload == OpenLoop)
                && series.parameters.hold_ns == 0
                && samples.iter().any(by_chance),
            unserved: total(|sample| sample.unserved),
            is_saturated: samples.iter().any(|sample| sample.is_saturated),
            is_of_the_client: samples.iter().any(is_busy),
        }
    }

    /// What the comparison with the bare commands compares; more is worse.
    fn cost(&self, series: &Series) -> Option<f64> {
        let cost = match series.workload {
            Workload::HandOff => self.hand_off.map(|q| q.p50.median),
            Workload::OpenLoop => self.acquire.map(|q| q.p50.median),
            Workload::CrashRecovery | Workload::Layer | Workload::Http | Workload::Footprint => {
                None
            }
            _ => self.time_per_acquisition(series),
        };
        cost.filter(|cost| *cost > 0.0)
    }

    /// How long a contender takes for an acquisition and its release without the hold, in
    /// nanoseconds.
    fn time_per_acquisition(&self, series: &Series) -> Option<f64> {
        let throughput = self.throughput?.median;
        // On one key the contenders take turns; elsewhere they work at the same time.
        let at_once = series.parameters.keys.min(series.parameters.contenders);
        let turn = f64::from(at_once.max(1)) * 1e9 / throughput;
        let held = spread(series, |sample| per_acquisition(sample, sample.held_ns))?.median;
        Some(turn - held).filter(|time| *time > 0.0 && time.is_finite())
    }
}

impl Quantiles {
    fn of(series: &Series, of: fn(&Sample) -> &Latencies) -> Option<Self> {
        let at = |share| {
            let samples = series.samples.iter();
            Spread::of(samples.filter_map(|sample| of(sample).quantile_ns(share).map(float)))
        };
        Some(Self {
            p50: at(0.5)?,
            p99: at(0.99)?,
            p999: at(0.999)?,
        })
    }
}

impl Spread {
    /// Sorts values that are numbers; none if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let numbers = values.into_iter().filter(|value| value.is_finite());
        let mut sorted: Vec<_> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: *sorted.get(sorted.len().checked_sub(1)? / 2)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// Whether the difference to another one may be chance: the median of one of them lies between
    /// the least and the greatest of the other.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let holds = |spread: &Self, value| (spread.min..=spread.max).contains(&value);
        holds(self, other.median) || holds(other, self.median)
    }
}

fn spread(series: &Series, figure: fn(&Sample) -> Option<f64>) -> Option<Spread> {
    Spread::of(series.samples.iter().filter_map(figure))
}

/// A repeat without an acquisition counts as 0, unless there is none with one.
fn throughput(samples: &[Sample]) -> Option<Spread> {
    let measured = samples.iter().filter(|sample| sample.duration_ns > 0);
    let rates = measured.map(|s| float(s.acquisitions) * 1e9 / float(s.duration_ns));
    Spread::of(rates).filter(|spread| spread.max > 0.0)
}

fn per_acquisition(sample: &Sample, count: u64) -> Option<f64> {
    (sample.acquisitions > 0).then(|| float(count) / float(sample.acquisitions))
}

/// Of contenders that hold a lock for a time and share its key, even if there is one alone.
fn efficiency(series: &Series, is_shared: bool) -> Option<Spread> {
    let Parameters { hold_ns, keys, .. } = series.parameters;
    let takes_turns = is_shared || matches!(series.workload, Workload::HoldSweep);
    if hold_ns == 0 || !takes_turns {
        return None;
    }
    let keys = f64::from(keys.max(1));
    let measured = series.samples.iter().filter(|s| s.duration_ns > 0);
    Spread::of(measured.map(|s| (float(s.held_ns) / float(s.duration_ns) / keys).min(1.0)))
}

fn layer_adds(sample: &Sample) -> Option<f64> {
    let requests = sample.layer.as_ref()?;
    let median = |latencies: &Latencies| latencies.quantile_ns(0.5).map(float);
    Some(median(&requests.with)? - median(&requests.without)?)
}

fn jain(counts: &[u64]) -> Option<f64> {
    let sum: f64 = counts.iter().copied().map(float).sum();
    let squares: f64 = counts.iter().map(|count| float(*count).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (counts.len() as f64 * squares))
}

fn least_share(counts: &[u64]) -> Option<f64> {
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    (most > 0).then(|| float(least) / float(most))
}

fn float(number: u64) -> f64 {
    number as f64
}
