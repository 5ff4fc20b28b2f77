//! What a series amounts to: figures for people and for limits, from the raw samples.

use serde::Serialize;

use super::{Footprint, Latencies, Report, Sample, Series, Spread, TargetInfo, TargetKind};
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
    /// The time of an acquisition with its release, where nobody else wants the lock, in round
    /// trips of the target.
    pub pair_round_trips: Option<f64>,
    /// How many times as long it takes as the bare commands on the same server do: hand-offs, the
    /// latency of the open loop, and elsewhere the time per acquisition.
    pub to_bare: Option<f64>,
    /// Share of the time in which somebody had the lock.
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
    /// bound where nobody got the lock, which `unserved` counts.
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
    /// Failures in all repeats.
    pub errors: u64,
    /// Violations in all repeats; any makes the run fail.
    pub violations: u64,
    /// One slice of the time in so many was checked for violations, in the repeat that was checked
    /// least; all with 1 or 0.
    pub checked_of: u64,
    /// Whether contenders shared keys without tokens and held them for no time: then two holders at
    /// a time are seen by chance alone, where the moments of both meet.
    pub is_checked_by_chance: bool,
    /// Requests that still waited at the end, in all repeats. In the open loop the time until then
    /// is in `acquire`, as a lower bound; that of killed holders whose lock nobody got is in
    /// `recovery`.
    pub unserved: u64,
    /// Whether a repeat of the open loop fell behind for good.
    pub is_saturated: bool,
    /// Whether the client used more than four fifths of the processors: then the figures are its
    /// own.
    pub is_of_the_client: bool,
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

impl Report {
    /// Computes the figures of one of the series of this report.
    #[must_use]
    pub fn figures(&self, series: &Series) -> Figures {
        let mut figures = Figures::of(series, self.environment.cores);
        let round_trip = self.round_trip_ns(&series.target);
        let in_round_trips = |ns: f64| round_trip.map(|round_trip| ns / round_trip);
        let median = |quantiles: Option<Quantiles>| quantiles.map(|q| q.p50.median);
        figures.acquire_round_trips = median(figures.acquire).and_then(in_round_trips);
        figures.hand_off_round_trips = median(figures.hand_off).and_then(in_round_trips);
        if series.workload == Workload::Uncontended {
            let pair = figures.time_per_acquisition(series);
            figures.pair_round_trips = pair.and_then(in_round_trips);
        }
        figures.to_bare = self.bare_of(series).and_then(|limit| {
            let bare = Figures::of(limit, self.environment.cores);
            Some(figures.cost(series)? / bare.cost(limit)?)
        });
        figures
    }

    /// The target of that name.
    #[must_use]
    pub fn target(&self, name: &str) -> Option<&TargetInfo> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// The bare commands on the same server with the same parameters, if they were measured.
    #[must_use]
    pub fn bare_of(&self, series: &Series) -> Option<&Series> {
        let is_limit = |target: &TargetInfo| match &target.kind {
            TargetKind::Bare { of, .. } => *of == series.target,
            TargetKind::Lock { .. } | TargetKind::Peer { .. } => false,
        };
        let limit = self.targets.iter().find(|target| is_limit(target))?;
        let mut others = self.series.iter();
        others.find(|other| other.target == limit.name && other.is_beside(series))
    }

    /// The median round trip to a target; for bare commands without one, that of their target.
    #[must_use]
    pub fn round_trip_ns(&self, target: &str) -> Option<f64> {
        let target = self.target(target)?;
        let own = target.round_trip.as_ref();
        let lent = match &target.kind {
            TargetKind::Bare { of, .. } => self.target(of)?.round_trip.as_ref(),
            TargetKind::Lock { .. } | TargetKind::Peer { .. } => None,
        };
        own.or(lent)?.quantile_ns(0.5).map(float)
    }
}

impl Figures {
    fn of(series: &Series, cores: u32) -> Self {
        let samples = &series.samples;
        let total = |count: fn(&Sample) -> u64| samples.iter().map(count).sum();
        // Fairness is among those who want the same key.
        let is_shared = series.parameters.contenders > 1
            && !matches!(
                series.workload,
                Workload::Uncontended
                    | Workload::OpenLoop
                    | Workload::CrashRecovery
                    | Workload::Layer
                    | Workload::Footprint
            );
        let footprint = |figure: fn(&Footprint) -> u64| {
            let samples = samples
                .iter()
                .filter_map(|sample| sample.footprint.as_ref());
            Spread::of(samples.map(|f| float(figure(f)) / float(f.locks.max(1))))
        };
        let is_footprint = series.workload == Workload::Footprint;
        let period = float(series.parameters.ttl_ms) * 1e6 / 3.0;
        let among = |figure: fn(&Sample) -> Option<f64>| {
            is_shared.then(|| spread(series, figure)).flatten()
        };
        Self {
            // The kills of a crash recovery come one after the other, at the pace of the benchmark.
            throughput: match series.workload {
                Workload::CrashRecovery | Workload::Footprint => None,
                _ => spread(series, throughput),
            },
            acquire: Quantiles::of(series, |sample| &sample.acquire),
            release: Quantiles::of(series, |sample| &sample.release),
            hand_off: Quantiles::of(series, |sample| &sample.hand_off),
            acquire_round_trips: None,
            hand_off_round_trips: None,
            pair_round_trips: None,
            to_bare: None,
            efficiency: efficiency(series),
            jain: among(|sample| jain(&sample.per_contender)),
            least_share: among(|sample| least_share(&sample.per_contender)),
            overtakes: among(|sample| per_acquisition(sample, sample.overtakes)),
            commands: match is_footprint {
                true => None,
                false => spread(series, |sample| per_acquisition(sample, sample.commands?)),
            },
            recovery: Spread::of(
                samples
                    .iter()
                    .flat_map(|sample| sample.recovery_ns.iter().map(|nanos| float(*nanos))),
            ),
            layer_adds: spread(series, layer_adds),
            held_bytes: footprint(|footprint| footprint.held_bytes),
            waiting_bytes: footprint(|footprint| footprint.waiting_bytes),
            renewal_commands: Spread::of(samples.iter().filter_map(|sample| {
                let commands = sample
                    .commands
                    .filter(|_| is_footprint && sample.duration_ns > 0)?;
                Some(float(commands) * period / float(sample.duration_ns))
            })),
            renewal_processors: match is_footprint {
                true => spread(series, |sample| Some(sample.client_processors)),
                false => None,
            },
            acquisitions: total(|sample| sample.acquisitions),
            errors: total(|sample| sample.errors.values().sum()),
            violations: total(|sample| u64::try_from(sample.violations.len()).unwrap_or(u64::MAX)),
            checked_of: samples.iter().map(|s| s.checked_of).max().unwrap_or(0),
            is_checked_by_chance: (is_shared || series.workload == Workload::OpenLoop)
                && series.parameters.hold_ns == 0
                && samples
                    .iter()
                    .any(|s| s.with_token == Some(0) && s.acquisitions > 0),
            unserved: total(|sample| sample.unserved),
            is_saturated: samples.iter().any(|sample| sample.is_saturated),
            is_of_the_client: samples
                .iter()
                .any(|sample| sample.client_processors > 0.8 * f64::from(cores.max(1))),
        }
    }

    /// What the comparison with the bare commands compares; more is worse.
    fn cost(&self, series: &Series) -> Option<f64> {
        let cost = match series.workload {
            Workload::HandOff => self.hand_off.map(|q| q.p50.median),
            Workload::OpenLoop => self.acquire.map(|q| q.p50.median),
            Workload::CrashRecovery | Workload::Layer | Workload::Footprint => None,
            _ => self.time_per_acquisition(series),
        };
        cost.filter(|cost| *cost > 0.0)
    }

    /// How long a contender takes for an acquisition and its release without the hold, in
    /// nanoseconds.
    fn time_per_acquisition(&self, series: &Series) -> Option<f64> {
        let throughput = self.throughput?.median;
        // On one key the contenders take turns; elsewhere they work at the same time.
        let lanes = series.parameters.keys.min(series.parameters.contenders);
        let turn = f64::from(lanes.max(1)) * 1e9 / throughput;
        let held = spread(series, |sample| per_acquisition(sample, sample.held_ns))?.median;
        Some(turn - held).filter(|time| *time > 0.0)
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

fn spread(series: &Series, figure: fn(&Sample) -> Option<f64>) -> Option<Spread> {
    Spread::of(series.samples.iter().filter_map(figure))
}

fn throughput(sample: &Sample) -> Option<f64> {
    let is_measured = sample.duration_ns > 0 && sample.acquisitions > 0;
    is_measured.then(|| float(sample.acquisitions) * 1e9 / float(sample.duration_ns))
}

fn per_acquisition(sample: &Sample, count: u64) -> Option<f64> {
    (sample.acquisitions > 0).then(|| float(count) / float(sample.acquisitions))
}

fn efficiency(series: &Series) -> Option<Spread> {
    let takes_turns = matches!(
        series.workload,
        Workload::Contended | Workload::Fairness | Workload::HandOff | Workload::HoldSweep
    );
    if series.parameters.hold_ns == 0 || !takes_turns {
        return None;
    }
    let keys = f64::from(series.parameters.keys.max(1));
    let measured = series
        .samples
        .iter()
        .filter(|sample| sample.duration_ns > 0);
    Spread::of(measured.map(|s| (s.held_ns as f64 / s.duration_ns as f64 / keys).min(1.0)))
}

fn layer_adds(sample: &Sample) -> Option<f64> {
    let requests = sample.layer.as_ref()?;
    let median = |latencies: &Latencies| latencies.quantile_ns(0.5).map(float);
    Some(median(&requests.with)? - median(&requests.without)?)
}

fn jain(counts: &[u64]) -> Option<f64> {
    let sum: f64 = counts.iter().copied().map(float).sum();
    let squares: f64 = counts.iter().map(|count| float(*count).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (float_len(counts) * squares))
}

fn least_share(counts: &[u64]) -> Option<f64> {
    let most = *counts.iter().max()?;
    (most > 0).then(|| float(counts.iter().min().copied().unwrap_or(0)) / float(most))
}

fn float(number: u64) -> f64 {
    number as f64
}

fn float_len<T>(items: &[T]) -> f64 {
    float(u64::try_from(items.len()).unwrap_or(u64::MAX))
}
