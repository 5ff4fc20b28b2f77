//! Who gets the lock how often.

use super::Plot;
use super::canvas::{Align, Canvas, WIDTH};
use super::ink::Ink;
use super::legend::short;
use super::select::most_contended;
use crate::plan::Workload;
use crate::report::units::number;
use crate::report::{Report, Sample, Series};

/// The share of each contender, with Jain's index.
pub(super) fn fairness(report: &Report) -> Option<Plot> {
    let has_it = |series: &Series| report.figures(series).jain.is_some();
    let workloads = [Workload::Fairness, Workload::Contended, Workload::HandOff];
    let mut sides = workloads.into_iter();
    let side = sides.find_map(|workload| most_contended(report, workload, has_it))?;
    let blocks = side.series.iter().filter_map(|(series, ink)| {
        let figures = report.figures(series);
        Some(Block {
            name: series.target.clone(),
            ink: *ink,
            jain: figures.jain?.median,
            shares: shares(&series.samples),
        })
    });
    let blocks: Vec<_> = blocks.collect();
    let most = blocks.iter().flat_map(|block| &block.shares).copied();
    let most = most.fold(1.25, f64::max);
    let caption = "Acquisitions of each contender, all repeats together, from the one that has \
                   most to the one that has least; dashed: the same for all. Jain's index is 1 \
                   if all have the same.";
    let title = format!("Fairness, {}", side.parameters);
    let said = blocks
        .iter()
        .map(|block| format!("{} {}", block.name, block.index()));
    let plot = Plot::new("fairness", title, caption).with_alt(said);
    let count = f64::from(u32::try_from(blocks.len()).unwrap_or(u32::MAX));
    Some(plot.drawn(count * HEIGHT, |canvas| {
        let mut top = 0.0;
        for block in &blocks {
            block.draw(canvas, top, most);
            top += HEIGHT;
        }
    }))
}

struct Block {
    name: String,
    ink: Ink,
    jain: f64,
    /// Where 1.0 is what everybody has if all have the same; the greatest first.
    shares: Vec<f64>,
}

impl Block {
    fn index(&self) -> String {
        format!("Jain {}", number(self.jain))
    }

    fn draw(&self, canvas: &Canvas<'_>, top: f64, most: f64) {
        canvas.text((0.0, top), &short(&self.name), Ink::Text, Align::Left);
        canvas.text((WIDTH, top), &self.index(), Ink::Text, Align::Right);
        let (high, low) = (top + 20.0, top + HEIGHT - 14.0);
        let height = |share: f64| low - (low - high) * share / most;
        let count = f64::from(u32::try_from(self.shares.len()).unwrap_or(u32::MAX));
        let step = WIDTH / count;
        let gap = (step / 5.0).min(3.0);
        let mut left = 0.0;
        for share in &self.shares {
            let corners = [(left, height(*share)), (left + step - gap, low)];
            match self.ink {
                Ink::Limit(_) => canvas.frame(corners, self.ink),
                ink => canvas.bar(corners, ink),
            }
            left += step;
        }
        canvas.line(&[(0.0, low), (WIDTH, low)], Ink::Muted, 1.0);
        canvas.line(
            &[(0.0, height(1.0)), (WIDTH, height(1.0))],
            Ink::Dashes,
            1.5,
        );
    }
}

fn shares(samples: &[Sample]) -> Vec<f64> {
    let count = samples
        .iter()
        .map(|sample| sample.per_contender.len())
        .max();
    let mut sums = vec![0u64; count.unwrap_or(0)];
    for sample in samples {
        for (sum, count) in sums.iter_mut().zip(&sample.per_contender) {
            *sum += count;
        }
    }
    sums.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = sums.iter().sum();
    let mean = all as f64 / sums.len().max(1) as f64;
    sums.iter()
        .map(|sum| *sum as f64 / mean.max(f64::MIN_POSITIVE))
        .collect()
}

const HEIGHT: f64 = 104.0;
