//! Single measurements.

use super::Plot;
use super::axis::{Axis, DURATIONS};
use super::canvas::{Align, Canvas, Places, WIDTH};
use super::ink::Ink;
use super::legend::{Legend, short};
use super::select::most_contended;
use crate::plan::Workload;
use crate::report::units::duration;
use crate::report::{Report, Series, Spread};

/// How long a lock stays taken whose holder was killed.
pub(super) fn recovery(report: &Report) -> Option<Plot> {
    let has_it = |series: &Series| !times(series).is_empty();
    let side = most_contended(report, Workload::CrashRecovery, has_it)?;
    let rows = side.series.iter().filter_map(|(series, ink)| {
        let times = times(series);
        Some(Row {
            name: series.target.clone(),
            ink: *ink,
            ttl: series.parameters.ttl_ms as f64 * 1e6,
            spread: Spread::of(times.iter().copied())?,
            times,
        })
    });
    let rows: Vec<_> = rows.collect();
    let ends = rows.iter().map(|row| row.spread.max.max(row.ttl));
    let x = Axis::linear("time from the kill", ends.fold(0.0, f64::max), DURATIONS);
    let count = f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let y = Axis::rows(count);

    let caption = "From the kill of the holder to the next acquisition, one dot for each kill; \
                   upright line: the median; dashed: the ttl, the least that the target has.";
    let plot = Plot::new("recovery", "Recovery from a killed holder", caption);
    let plot = plot.with_alt(
        rows.iter()
            .map(|row| format!("{} {}", row.name, row.said())),
    );
    let legend = Legend::new([("ttl".to_owned(), Ink::Dashes)]);
    let top = legend.height();
    let bottom = top + 60.0 + count * HEIGHT;
    Some(plot.drawn(bottom, |canvas| {
        legend.draw(canvas);
        let places = canvas.axes((top, bottom), &x, &y);
        for (at, row) in (0u32..).map(f64::from).zip(&rows) {
            row.draw(canvas, &places, count - at);
        }
    }))
}

struct Row {
    name: String,
    ink: Ink,
    ttl: f64,
    times: Vec<f64>,
    spread: Spread,
}

impl Row {
    fn said(&self) -> String {
        let (median, max) = (duration(self.spread.median), duration(self.spread.max));
        format!("{median}, at most {max}")
    }

    /// Draws it below that place on the axis of the rows.
    fn draw(&self, canvas: &Canvas<'_>, places: &Places, at: f64) {
        let (left, top) = places(0.0, at);
        let y = top + 4.0;
        canvas.text((left + 6.0, y), &short(&self.name), Ink::Text, Align::Left);
        canvas.text((WIDTH - 16.0, y), &self.said(), Ink::Muted, Align::Right);
        let upright = |time: f64| [at - 0.48, at - 0.96].map(|y| places(time, y));
        canvas.line(&upright(self.ttl), Ink::Dashes, 1.5);
        for time in &self.times {
            canvas.dot(places(*time, at - 0.72), self.ink);
        }
        canvas.line(&upright(self.spread.median), self.ink, 2.0);
    }
}

fn times(series: &Series) -> Vec<f64> {
    let kills = series.samples.iter().flat_map(|sample| &sample.recovery_ns);
    kills.map(|nanos| *nanos as f64).collect()
}

const HEIGHT: f64 = 46.0;
