//! One number for each target: bars with the number beside the name.

use super::Plot;
use super::canvas::{Align, WIDTH};
use super::ink::Ink;
use super::legend::short;
use super::select::{Side, least_contended, most_contended};
use crate::plan::Workload;
use crate::report::units::{duration, number};
use crate::report::{Figures, Report};

/// What a free lock costs, in round trips of the target.
pub(super) fn round_trips(report: &Report) -> Option<Plot> {
    let has_it = |series: &_| report.figures(series).pair_round_trips.is_some();
    let side = least_contended(report, Workload::Uncontended, has_it)?;
    let rows = rows(
        report,
        &side,
        |figures| figures.pair_round_trips,
        |trips, target| {
            let round_trip = report.round_trip_ns(target).unwrap_or_default();
            format!("{} x {}", number(trips), duration(round_trip))
        },
    );
    let title = format!("Acquire and release in round trips, {}", side.parameters);
    let caption = "The time of an acquisition and its release, divided by that of the smallest \
                   command to the same server. Frames: bare commands of the same client.";
    draw(Plot::new("round-trips", title, caption), &rows)
}

/// What an acquisition asks of the server.
pub(super) fn commands(report: &Report) -> Vec<Plot> {
    let has_it = |series: &_| report.figures(series).commands.is_some();
    let sides = [
        least_contended(report, Workload::Uncontended, has_it),
        most_contended(report, Workload::Contended, has_it),
    ];
    let plots = sides.into_iter().flatten().filter_map(|side| {
        let workload = side.series.first()?.0.workload;
        let median = |figures: &Figures| figures.commands.map(|spread| spread.median);
        let rows = rows(report, &side, median, |count, _| number(count));
        let (name, what) = match workload {
            Workload::Uncontended => ("commands-uncontended", "a free lock"),
            _ => ("commands-contended", "a lock that all want"),
        };
        let title = format!("Commands per acquisition of {what}, {}", side.parameters);
        let caption = "As the server counts them, with release, renewals and everything else that \
                       the client sent. Frames: bare commands.";
        draw(Plot::new(name, title, caption), &rows)
    });
    plots.collect()
}

/// What the layer adds to a request.
pub(super) fn layer(report: &Report) -> Option<Plot> {
    let has_it = |series: &_| report.figures(series).layer_adds.is_some();
    let side = least_contended(report, Workload::Layer, has_it)?;
    let median = |figures: &Figures| figures.layer_adds.map(|adds| adds.median);
    let rows = rows(report, &side, median, |nanos, _| duration(nanos));
    let title = format!("What the layer adds to a request, {}", side.parameters);
    let caption = "The median time of a request through the layer, less that of one to the same \
                   service without it.";
    draw(Plot::new("layer", title, caption), &rows)
}

struct Row {
    name: String,
    ink: Ink,
    value: f64,
    text: String,
}

fn rows(
    report: &Report,
    side: &Side<'_>,
    figure: fn(&Figures) -> Option<f64>,
    text: impl Fn(f64, &str) -> String,
) -> Vec<Row> {
    let rows = side.series.iter().filter_map(|(series, ink)| {
        let value = figure(&report.figures(series))?;
        Some(Row {
            name: series.target.clone(),
            ink: *ink,
            value,
            text: text(value, &series.target),
        })
    });
    rows.collect()
}

fn draw(plot: Plot, rows: &[Row]) -> Option<Plot> {
    let most = rows.iter().map(|row| row.value).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let plot = plot.with_alt(rows.iter().map(|row| format!("{} {}", row.name, row.text)));
    let count = f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    Some(plot.drawn(count * ROW + 4.0, |canvas| {
        let mut top = 0.0;
        for row in rows {
            canvas.text((0.0, top), &short(&row.name), Ink::Text, Align::Left);
            canvas.text((WIDTH, top), &row.text, Ink::Text, Align::Right);
            let width = (WIDTH * row.value / most).max(2.0);
            let corners = [(0.5, top + 17.0), (width - 0.5, top + 28.0)];
            match row.ink {
                Ink::Limit(_) => canvas.frame(corners, row.ink),
                ink => canvas.bar(corners, ink),
            }
            top += ROW;
        }
    }))
}

const ROW: f64 = 40.0;
