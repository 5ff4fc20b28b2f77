//! How durations are distributed: the share that is not longer, over the duration.

use super::Plot;
use super::axis::{Axis, DURATIONS, nines};
use super::ink::Ink;
use super::select::{Side, least_contended, legend, most_contended};
use crate::plan::Workload;
use crate::report::units::duration;
use crate::report::{Latencies, Report, Sample, Series, name_of};

/// From the request to the acquisition: alone, with most contenders, and in the open loop.
pub(super) fn acquire(report: &Report) -> Vec<Plot> {
    let of = |sample: &Sample| sample.acquire.clone();
    let has_it = |series: &Series| !merged(series, of).is_empty();
    let sides = [
        (
            least_contended(report, Workload::Uncontended, has_it),
            "Time to acquire a lock that is free",
            "From the request to the acquisition, all repeats together.",
        ),
        (
            most_contended(report, Workload::Contended, has_it),
            "Time to acquire a lock that all want",
            "From the request to the acquisition, waiting included, all repeats together.",
        ),
        (
            most_contended(report, Workload::OpenLoop, has_it),
            "Time to acquire under a load that does not wait",
            "From the intended start of the request to the acquisition, all repeats together.",
        ),
    ];
    let sides = sides
        .into_iter()
        .filter_map(|(side, title, caption)| Some((side?, title, caption)));
    let plots = sides.filter_map(|(side, title, caption)| {
        let workload = side.series.first()?.0.workload;
        let plot = Plot::new(
            format!("acquire-{}", name_of(workload)),
            format!("{title}, {}", side.parameters),
            caption,
        );
        draw(plot, &side, of)
    });
    plots.collect()
}

/// From the call of release to the next acquisition.
pub(super) fn hand_off(report: &Report) -> Option<Plot> {
    let of = |sample: &Sample| sample.hand_off.clone();
    let has_it = |series: &Series| !merged(series, of).is_empty();
    let side = most_contended(report, Workload::HandOff, has_it)
        .or_else(|| most_contended(report, Workload::Contended, has_it))?;
    let caption = "From the call of release to the acquisition of a contender that waited: the \
                   time in which nobody has a lock that others want.";
    let title = format!("Hand-off, {}", side.parameters);
    draw(Plot::new("hand-off", title, caption), &side, of)
}

fn merged(series: &Series, of: impl Fn(&Sample) -> Latencies) -> Latencies {
    let mut all = Latencies::default();
    for sample in &series.samples {
        all.merge(&of(sample));
    }
    all
}

fn draw(plot: Plot, side: &Side<'_>, of: fn(&Sample) -> Latencies) -> Option<Plot> {
    let lines = side.series.iter();
    let lines: Vec<_> = lines
        .map(|(series, ink)| (merged(series, of), *ink))
        .collect();
    let least = lines
        .iter()
        .filter_map(|(all, _)| all.quantile_ns(0.0))
        .min()?;
    let most = lines
        .iter()
        .filter_map(|(all, _)| all.quantile_ns(SHOWN))
        .max()?;
    let x = Axis::log("time", (float(least), float(most)), DURATIONS);
    let y = Axis::shares();

    let said = side
        .series
        .iter()
        .zip(&lines)
        .filter_map(|((series, _), (all, _))| {
            let at = |share| all.quantile_ns(share).map(|nanos| duration(float(nanos)));
            Some(format!(
                "{} median {}, 99 % {}",
                series.target,
                at(0.5)?,
                at(0.99)?
            ))
        });
    let plot = plot.with_alt(said);

    let legend = legend(side.series.iter().copied());
    let top = legend.height();
    Some(plot.drawn(top + 270.0, |canvas| {
        legend.draw(canvas);
        let places = canvas.axes((top, top + 270.0), &x, &y);
        for (all, ink) in &lines {
            let points: Vec<_> = points(all)
                .map(|(nanos, share)| places(nanos.log10(), share.min(y.most())))
                .collect();
            canvas.line(&points, *ink, 2.0);
            // In the line, so that it is told apart by more than its colour.
            if let (Ink::Target(_), Some(nanos)) = (ink, all.quantile_ns(0.5)) {
                canvas.mark(places(float(nanos).log10(), nines(0.5)), *ink);
            }
        }
    }))
}

/// Durations with the nines of the share that is not longer. The longest of n stands for one half
/// of its share, since nobody knows how rare it is.
fn points(all: &Latencies) -> impl Iterator<Item = (f64, f64)> + '_ {
    let last = nines(1.0 - 0.5 / float(all.len().max(1)));
    let steps = all.distribution();
    let steps = steps.map(move |(nanos, share)| (float(nanos), nines(share).min(last)));
    steps.filter(|(_, share)| *share <= nines(SHOWN))
}

/// What is beyond is left out.
const SHOWN: f64 = 0.999_9;

fn float(number: u64) -> f64 {
    number as f64
}
