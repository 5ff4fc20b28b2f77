//! Who had the lock when: starvation is seen at a glance.

use super::Plot;
use super::canvas::{Align, Canvas, WIDTH};
use super::ink::Ink;
use super::legend::short;
use super::select::most_contended;
use crate::plan::Workload;
use crate::report::units::duration;
use crate::report::{Report, Series, Turn};

/// The first turns on the lock of each target, one row for each contender.
pub(super) fn turns(report: &Report) -> Option<Plot> {
    let has_it = |series: &Series| !first(series).is_empty();
    let workloads = [Workload::Fairness, Workload::HandOff, Workload::Contended];
    let mut sides = workloads.into_iter();
    let side = sides.find_map(|workload| most_contended(report, workload, has_it))?;
    let blocks = side.series.iter().map(|(series, ink)| Block {
        name: series.target.clone(),
        ink: *ink,
        turns: first(series),
        contenders: series.parameters.contenders.max(1),
    });
    let blocks: Vec<_> = blocks.collect();
    let title = format!("The first turns, {}", side.parameters);
    let caption = "One row for each contender, a bar for each time that it had the lock; every \
                   target has its own scale of time.";
    let said = blocks
        .iter()
        .map(|block| format!("{} {}", block.name, block.summary()));
    let plot = Plot::new("timeline", title, caption).with_alt(said);
    let height = blocks.iter().map(Block::height).sum();
    Some(plot.drawn(height, |canvas| {
        let mut top = 0.0;
        for block in &blocks {
            block.draw(canvas, top);
            top += block.height();
        }
    }))
}

fn first(series: &Series) -> &[Turn] {
    let mut samples = series
        .samples
        .iter()
        .map(|sample| sample.timeline.as_slice());
    let turns = samples.find(|turns| !turns.is_empty()).unwrap_or_default();
    &turns[..turns.len().min(SHOWN)]
}

struct Block<'a> {
    name: String,
    ink: Ink,
    turns: &'a [Turn],
    contenders: u32,
}

impl Block<'_> {
    fn summary(&self) -> String {
        let (from, to) = self.span();
        format!("{} turns in {}", self.turns.len(), duration(to - from))
    }

    fn span(&self) -> (f64, f64) {
        let from = self.turns.iter().map(|turn| turn.from_ns).min();
        let to = self.turns.iter().map(|turn| turn.to_ns).max();
        (from.unwrap_or(0) as f64, to.unwrap_or(0) as f64)
    }

    fn row(&self) -> f64 {
        (112.0 / f64::from(self.contenders)).clamp(3.0, 14.0)
    }

    fn height(&self) -> f64 {
        HEAD + self.row() * f64::from(self.contenders) + 16.0
    }

    fn draw(&self, canvas: &Canvas<'_>, top: f64) {
        canvas.text((0.0, top), &short(&self.name), Ink::Text, Align::Left);
        canvas.text((WIDTH, top), &self.summary(), Ink::Muted, Align::Right);
        let (from, to) = self.span();
        let x = |nanos: u64| WIDTH * (nanos as f64 - from) / (to - from).max(1.0);
        for row in 0..=self.contenders {
            let y = top + HEAD + self.row() * f64::from(row);
            canvas.line(&[(0.0, y), (WIDTH, y)], Ink::Grid, 0.5);
        }
        for turn in self.turns {
            let y = top + HEAD + self.row() * f64::from(turn.contender.min(self.contenders - 1));
            let left = x(turn.from_ns).min(WIDTH - 0.75);
            let right = x(turn.to_ns).max(left + 0.75);
            canvas.bar([(left, y + 0.5), (right, y + self.row() - 0.5)], self.ink);
        }
    }
}

/// Turns of a target that are drawn.
const SHOWN: usize = 200;
const HEAD: f64 = 20.0;
