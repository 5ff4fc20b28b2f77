//! Single measurements.

use super::Plot;
use super::axis::{Axis, DURATIONS};
use super::canvas::{Align, Canvas, Places};
use super::ink::Ink;
use super::legend::{Legend, short};
use super::select::most_contended;
use crate::plan::Workload;
use crate::report::units::duration;
use crate::report::{Report, Series};

/// How long a lock stays taken whose holder was killed.
pub(super) fn recovery(report: &Report) -> Option<Plot> {
    let has_it = |series: &Series| report.figures(series).recovery.is_some();
    let side = most_contended(report, Workload::CrashRecovery, has_it)?;
    let ttl = side.parameters.ttl_ms as f64 * 1e6;
    let times = |series: &Series| -> Vec<f64> {
        let samples = series.samples.iter().flat_map(|sample| &sample.recovery_ns);
        samples.map(|nanos| *nanos as f64).collect()
    };
    let rows: Vec<_> = side
        .series
        .iter()
        .map(|(s, ink)| (&s.target, times(s), *ink))
        .collect();
    let most = rows
        .iter()
        .flat_map(|(_, times, _)| times)
        .copied()
        .fold(ttl, f64::max);
    let caption = "From the kill of the holder to the next acquisition, one dot for each kill; \
                   upright: the median; dashed: the ttl.";
    let said = side.series.iter().filter_map(|(series, _)| {
        let recovery = report.figures(series).recovery?;
        let (median, max) = (duration(recovery.median), duration(recovery.max));
        Some(format!("{} median {median}, longest {max}", series.target))
    });
    let title = format!("Recovery from a killed holder, ttl {}", duration(ttl));
    let plot = Plot::new("recovery", title, caption).with_alt(said);

    let legend = Legend::new([("ttl".to_owned(), Ink::Dashes)]);
    let count = f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let x = Axis::linear("time", most, DURATIONS);
    let y = Axis::rows(count);
    let top = legend.height();
    let bottom = top + 60.0 + count * ROW;
    Some(plot.drawn(bottom, |canvas| {
        legend.draw(canvas);
        let places = canvas.axes((top, bottom), &x, &y);
        canvas.line(&[places(ttl, 0.0), places(ttl, count)], Ink::Dashes, 1.5);
        for (at, (name, times, ink)) in (0u32..).zip(&rows) {
            draw_row(canvas, &places, count - f64::from(at), (name, times, *ink));
        }
    }))
}

fn draw_row(canvas: &Canvas<'_>, places: &Places, at: f64, row: (&str, &[f64], Ink)) {
    let (name, times, ink) = row;
    let (left, top) = places(0.0, at);
    canvas.text(
        (left + 6.0, top + 4.0),
        &short(name),
        Ink::Text,
        Align::Left,
    );
    for time in times {
        canvas.dot(places(*time, at - 0.72), ink);
    }
    if let Some(spread) = crate::report::Spread::of(times.iter().copied()) {
        let ends = [at - 0.48, at - 0.96].map(|y| places(spread.median, y));
        canvas.line(&ends, ink, 2.0);
    }
}

const ROW: f64 = 46.0;
