//! Figures over a parameter: one line for each target, with the spread of the repeats.

use super::Plot;
use super::axis::{Axis, COUNTS, PERCENT};
use super::canvas::{Canvas, Places};
use super::ink::Ink;
use super::select::{ink_of, legend};
use crate::plan::Workload;
use crate::report::units::{duration_mark, number};
use crate::report::{Figures, Parameters, Report, Series, Spread};

/// Acquisitions per second over the number of contenders.
pub(super) fn throughput(report: &Report) -> Vec<Plot> {
    let plots = [
        (
            Workload::Contended,
            "Throughput of one lock",
            "All contenders want the same lock. Bars: least and greatest of the repeats.",
        ),
        (
            Workload::Uncontended,
            "Throughput of as many locks as contenders",
            "Nobody wants the lock of another. Bars: least and greatest of the repeats.",
        ),
    ];
    let plots = plots.into_iter().filter_map(|(workload, title, caption)| {
        let is_shown = |series: &Series| series.workload == workload;
        let contenders = |parameters: &Parameters| u64::from(parameters.contenders);
        let points = points(report, is_shown, contenders, |f| f.throughput);
        let (least, most) = bounds(&points)?;
        let y = Axis::log("acquisitions per second", (least, most), COUNTS);
        let name = format!("throughput-{}", crate::report::name_of(workload));
        let words = |spread: Spread| format!("{} per second", number(spread.median));
        let at = |x: u64| format!("{x} contenders");
        let plot = Plot::new(name, title, caption).with_alt(said(&points, at, words));
        let x = names(&points, |x| x.to_string());
        Some(draw(
            plot,
            &points,
            &Axis::steps("contenders", x),
            &y,
            f64::log10,
        ))
    });
    plots.collect()
}

/// Useful share of the time over the time of the hold.
pub(super) fn efficiency(report: &Report) -> Option<Plot> {
    let sweep = report
        .series
        .iter()
        .filter(|s| s.workload == Workload::HoldSweep);
    let most = sweep.map(|series| series.parameters.contenders).max()?;
    let is_shown = |series: &Series| {
        series.workload == Workload::HoldSweep && series.parameters.contenders == most
    };
    let points = points(report, is_shown, |p| p.hold_ns, |f| f.efficiency);
    bounds(&points)?;
    let caption = "Share of the time in which the work under the lock goes on; the rest passes \
                   between holders.";
    let words = |spread: Spread| format!("{:.0} %", spread.median * 100.0);
    let held = |x: u64| format!("hold {}", plain(x));
    let plot = Plot::new(
        "hold-sweep",
        format!("Efficiency over the hold, {most} contenders"),
        caption,
    );
    let plot = plot.with_alt(said(&points, held, words));
    let x = Axis::steps("how long each holds the lock", names(&points, plain));
    let y = Axis::linear("useful share of the time", 1.0, PERCENT);
    Some(draw(plot, &points, &x, &y, |share| share))
}

/// What a target has, by a parameter.
struct Points<'a> {
    series: &'a Series,
    ink: Ink,
    values: Vec<(u64, Spread)>,
}

fn points(
    report: &Report,
    is_shown: impl Fn(&Series) -> bool,
    parameter: fn(&Parameters) -> u64,
    figure: fn(&Figures) -> Option<Spread>,
) -> Vec<Points<'_>> {
    let mut lines: Vec<Points<'_>> = Vec::new();
    for series in report.series.iter().filter(|series| is_shown(series)) {
        let Some(value) = figure(&report.figures(series)) else {
            continue;
        };
        let value = (parameter(&series.parameters), value);
        match lines
            .iter_mut()
            .find(|line| line.series.target == series.target)
        {
            Some(line) => line.values.push(value),
            None => lines.push(Points {
                series,
                ink: ink_of(report, &series.target),
                values: vec![value],
            }),
        }
    }
    for line in &mut lines {
        line.values.sort_by_key(|(x, _)| *x);
    }
    lines
}

fn bounds(lines: &[Points<'_>]) -> Option<(f64, f64)> {
    let values = lines.iter().flat_map(|line| &line.values);
    let all = Spread::of(values.flat_map(|(_, spread)| [spread.min, spread.max]))?;
    Some((all.min, all.max))
}

/// All values of the parameter, in their order.
fn steps(lines: &[Points<'_>]) -> Vec<u64> {
    let mut steps: Vec<_> = lines
        .iter()
        .flat_map(|line| &line.values)
        .map(|(x, _)| *x)
        .collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

fn names(lines: &[Points<'_>], name: fn(u64) -> String) -> Vec<String> {
    steps(lines).into_iter().map(name).collect()
}

fn said(lines: &[Points<'_>], at: fn(u64) -> String, words: fn(Spread) -> String) -> Vec<String> {
    let last = |line: &Points<'_>| {
        let (x, value) = line.values.last()?;
        Some(format!(
            "{} {} at {}",
            line.series.target,
            words(*value),
            at(*x)
        ))
    };
    lines.iter().filter_map(last).collect()
}

fn draw(plot: Plot, lines: &[Points<'_>], x: &Axis, y: &Axis, scale: fn(f64) -> f64) -> Plot {
    let legend = legend(lines.iter().map(|line| (line.series, line.ink)));
    let top = legend.height();
    let steps = steps(lines);
    plot.drawn(top + 290.0, |canvas| {
        legend.draw(canvas);
        let places = canvas.axes((top, top + 290.0), x, y);
        for line in lines {
            draw_line(canvas, line, &places, &steps, scale);
        }
    })
}

fn draw_line(
    canvas: &Canvas<'_>,
    line: &Points<'_>,
    places: &Places,
    steps: &[u64],
    scale: fn(f64) -> f64,
) {
    let step = |x: u64| {
        (0u32..)
            .map(f64::from)
            .zip(steps)
            .find(|(_, step)| **step == x)
    };
    let mut medians = Vec::new();
    for (x, value) in &line.values {
        let at = step(*x).map_or(0.0, |(at, _)| at);
        let ends = [value.min, value.max].map(|end| places(at, scale(end)));
        canvas.line(&ends, line.ink, 1.0);
        medians.push(places(at, scale(value.median)));
    }
    canvas.line(&medians, line.ink, 2.0);
    if matches!(line.ink, Ink::Target(_)) {
        for median in medians {
            canvas.mark(median, line.ink);
        }
    }
}

fn plain(nanos: u64) -> String {
    match nanos {
        0 => "0".to_owned(),
        nanos => duration_mark(nanos as f64),
    }
}
