//! The plots of a report as SVG: the figures are here, the drawing is in the templates. A style sheet has
//! the colors, so that a plot follows the color scheme of its reader.

use askama::Template;

use super::tables::shortened;
use super::units::{duration, number};
use super::{Latencies, Report, Sample, Series, Spread};
use crate::plan::{Workload, name_of};

/// A plot of a report. It follows the color scheme of the reader and needs nothing else.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Plot {
    /// A name that fits a file, such as `throughput-contended`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// Its figures in words, for readers who do not see it.
    pub alt: String,
    height: usize,
    inside: String,
}

impl Plot {
    fn new(
        [name, title, caption]: [&str; 3],
        said: &[String],
        height: usize,
        drawing: &impl Template,
    ) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            alt: format!("{title}: {}", said.join("; ")),
            height,
            inside: drawing.render().expect(RENDERED),
        }
    }

    /// The plot as a file of its own.
    #[must_use]
    pub fn to_file(&self) -> String {
        self.svg(true)
    }

    /// The plot as a part of a page that has the style sheet.
    pub(super) fn to_element(&self) -> String {
        self.svg(false)
    }

    fn svg(&self, is_file: bool) -> String {
        let svg = Svg {
            plot: self,
            is_file,
        };
        svg.render().expect(RENDERED)
    }
}

#[derive(Template)]
#[template(path = "plot.svg", escape = "html")]
struct Svg<'a> {
    plot: &'a Plot,
    is_file: bool,
}

const RENDERED: &str = "BUG: it writes into memory";

impl Report {
    /// Draws everything that was measured.
    #[must_use]
    pub fn plots(&self) -> Vec<Plot> {
        let plots = [
            self.throughput(Workload::Contended),
            self.throughput(Workload::Uncontended),
            self.distribution(Workload::Uncontended, |s| &s.acquire),
            self.distribution(Workload::Contended, |s| &s.acquire),
            self.distribution(Workload::OpenLoop, |s| &s.acquire),
            self.distribution(Workload::HandOff, |s| &s.hand_off),
            self.fairness(),
        ];
        plots.into_iter().flatten().collect()
    }

    /// The series of a workload with the most contenders (the fewest, where locks are free) that
    /// have what is drawn, one for each target.
    pub(super) fn side(
        &self,
        workload: Workload,
        has_it: impl Fn(&Series) -> bool,
    ) -> Vec<&Series> {
        let is_it = |series: &&Series| series.workload == workload && has_it(series);
        let all: Vec<_> = self.series.iter().filter(is_it).collect();
        let contenders = |series: &&&Series| series.parameters.contenders;
        let chosen = match workload {
            Workload::Uncontended | Workload::Layer | Workload::Http => {
                all.iter().min_by_key(contenders)
            }
            // The first of those, which has the shortest hold of a sweep.
            _ => all.iter().rev().max_by_key(contenders),
        };
        let is_beside = |series: &&Series| chosen.is_some_and(|chosen| series.is_beside(chosen));
        all.iter().copied().filter(is_beside).collect()
    }

    /// Acquisitions per second over the number of contenders.
    fn throughput(&self, workload: Workload) -> Option<Plot> {
        let title = match workload {
            Workload::Contended => "Acquisitions per second of one lock",
            _ => "Acquisitions per second of as many locks as contenders",
        };
        let measured = self.series.iter().filter(|s| s.workload == workload);
        let measured = measured.filter_map(|s| Some((s, self.figures(s).throughput?.median)));
        // The scale is logarithmic.
        let measured = measured.filter(|(_, median)| *median > 0.0);
        let measured: Vec<_> = measured.collect();
        let ends = Spread::of(measured.iter().map(|(_, median)| *median))?;
        let mut steps: Vec<_> = self.plan.contenders.clone();
        steps.extend(measured.iter().map(|(s, _)| s.parameters.contenders));
        steps.sort_unstable();
        steps.dedup();
        let at = |n: u32| steps.partition_point(|step| *step < n) as f64;
        let lines = self.targets.iter().filter_map(|target| {
            let of_target = measured.iter().filter(|(s, _)| s.target == target.name);
            let of_target: Vec<_> = of_target.collect();
            let (last, median) = of_target.last()?;
            let points = of_target.iter();
            let points = points.map(|(s, median)| (at(s.parameters.contenders), median.log10()));
            let points: Vec<_> = points.collect();
            Some(Line {
                name: shortened(target.name.clone()),
                class: self.class(&target.name),
                marks: points.clone(),
                points,
                text: format!("{}/s with {}", number(*median), last.parameters),
            })
        });
        let x = Axis {
            title: "contenders",
            pixels: ACROSS,
            range: (-0.4, steps.len() as f64 - 0.6),
            marks: steps.iter().map(|n| (at(*n), n.to_string())).collect(),
        };
        let y = Axis::log("acquisitions per second", UP, ends, number);
        let name = format!("throughput-{}", name_of(workload));
        let caption = "Medians of the repeats. Higher is better.";
        let lines: Vec<_> = lines.collect();
        Some(Self::chart([&name, title, caption], &lines, &x, &y))
    }

    /// The share of durations that are not longer, over the duration.
    fn distribution(&self, workload: Workload, of: fn(&Sample) -> &Latencies) -> Option<Plot> {
        let side = self.side(workload, |s| s.samples.iter().any(|s| !of(s).is_empty()));
        let (name, title, from) = match workload {
            Workload::HandOff => ("hand-off", "Hand-off to a waiter", "call of release"),
            Workload::OpenLoop => (
                "acquire-open-loop",
                "Time to acquire under a load that does not wait",
                "intended start of the request",
            ),
            Workload::Contended => (
                "acquire-contended",
                "Time to acquire a lock that all want",
                "request, waiting included,",
            ),
            _ => (
                "acquire-uncontended",
                "Time to acquire a free lock",
                "request",
            ),
        };
        let caption = format!("From the {from} to the acquisition. Further left is better.");
        let title = format!("{title}, {}", side.first()?.parameters);
        let merged = side.iter().map(|s| (&*s.target, s.merged(of)));
        let merged: Vec<_> = merged.collect();
        let at = |times: &Latencies, share| times.quantile_ns(share).unwrap_or_default() as f64;
        let ends = merged.iter();
        let ends = Spread::of(ends.flat_map(|(_, times)| [0.0, MAX_SHARE].map(|s| at(times, s))))?;
        let lines = merged.iter().map(|(target, times)| {
            let [half, most] = [0.5, 0.99].map(|share| at(times, share));
            // How rare the longest of n is, is unknown: it is drawn at half of its share.
            let last = nines(1.0 - 0.5 / times.len().max(1) as f64).min(nines(MAX_SHARE));
            let points = times.distribution();
            let points = points.map(|(ns, share)| ((ns as f64).log10(), nines(share)));
            Line {
                name: shortened((*target).to_owned()),
                class: self.class(target),
                points: points.take_while(|(_, y)| *y <= last).collect(),
                marks: vec![(half.log10(), nines(0.5))],
                text: format!("median {}, 99 % {}", duration(half), duration(most)),
            }
        });
        let x = Axis::log("time", ACROSS, ends, duration);
        let y = Axis {
            title: "share that is not longer",
            pixels: UP,
            range: (0.0, 4.15),
            marks: (0..5)
                .map(f64::from)
                .zip(SHARES.map(str::to_owned))
                .collect(),
        };
        let lines: Vec<_> = lines.collect();
        Some(Self::chart([name, &title, &caption], &lines, &x, &y))
    }

    /// How often each contender got the lock, over the mean.
    fn fairness(&self) -> Option<Plot> {
        let mut sides = [Workload::Fairness, Workload::Contended, Workload::HandOff]
            .into_iter()
            .map(|workload| self.side(workload, |s| self.figures(s).jain.is_some()));
        let side = sides.find(|side| !side.is_empty())?;
        let rows = side.iter().filter_map(|series| {
            let shares = shares(series);
            let scale = 66.0 / shares.iter().copied().fold(1.25, f64::max);
            let step = WIDTH / shares.len() as f64;
            let bars = shares.iter().enumerate().map(|(at, share)| {
                let (left, right) = (at as f64 * step, (at as f64 + 0.8) * step);
                [left, 84.0 - scale * share, right].map(pixels).into()
            });
            Some(Bars {
                name: shortened(series.target.clone()),
                text: format!("Jain {:.2}", self.figures(series).jain?.median),
                class: self.class(&series.target),
                bars: bars.collect(),
                mean: pixels(84.0 - scale),
            })
        });
        let rows: Vec<_> = rows.collect();
        let title = format!("Acquisitions of each contender, {}", side[0].parameters);
        let caption = "Level is better. Dashed: the same for all, where Jain's index is 1.";
        let said = rows.iter().map(|row| format!("{} {}", row.name, row.text));
        let (said, height) = (said.collect::<Vec<_>>(), rows.len() * 96);
        Some(Plot::new(
            ["fairness", &title, caption],
            &said,
            height,
            &BarChart { rows },
        ))
    }

    /// Lines over two axes, with a legend.
    fn chart(names: [&str; 3], lines: &[Line], x: &Axis, y: &Axis) -> Plot {
        let is_bare = |line: &&Line| line.class.ends_with(BARE);
        let mut legend: Vec<_> = lines
            .iter()
            .filter(|line| !is_bare(line))
            .cloned()
            .collect();
        if legend.len() < lines.len() {
            legend.push(Line {
                name: "bare commands".to_owned(),
                class: format!("axis{BARE}"),
                ..Line::default()
            });
        }
        let said = lines
            .iter()
            .map(|line| format!("{} {}", line.name, line.text));
        let said: Vec<_> = said.collect();
        let top = legend.len().div_ceil(2) * 18 + 8;
        let chart = Chart {
            legend,
            top,
            x,
            y,
            lines,
        };
        Plot::new(names, &said, top + 280, &chart)
    }

    /// The class of a target, the same in all plots; that of its bare commands is drawn dashed.
    pub(super) fn class(&self, name: &str) -> String {
        let of = self.target(name).and_then(|target| target.bare_of());
        let mut own = self.targets.iter().filter(|t| t.bare_of().is_none());
        let at = own.position(|own| own.name == of.unwrap_or(name));
        let number = at.unwrap_or_default() % COLORS;
        format!("t{number}{}", if of.is_some() { BARE } else { "" })
    }
}

const BARE: &str = " bare";

type Point = (f64, f64);

#[derive(Template)]
#[template(path = "chart.svg", escape = "html")]
struct Chart<'a> {
    legend: Vec<Line>,
    /// Where the axes begin, below the legend.
    top: usize,
    x: &'a Axis,
    y: &'a Axis,
    lines: &'a [Line],
}

/// The figures of a target, on the scales of the axes.
#[derive(Clone, Default)]
struct Line {
    name: String,
    class: String,
    points: Vec<Point>,
    marks: Vec<Point>,
    text: String,
}

impl Line {
    /// Targets differ in the shape of their marks too, for readers who see colors less. Bare
    /// commands have none.
    fn shape(&self) -> Option<&'static str> {
        let number: usize = self.class.strip_prefix('t')?.parse().ok()?;
        Some(SHAPES[number % SHAPES.len()])
    }
}

const SHAPES: [&str; 4] = [
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
    "m-3.2 -3.2h6.4v6.4h-6.4z",
    "m0 -4.2l4 7.4h-8z",
    "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
];

#[derive(Template)]
#[template(path = "bars.svg", escape = "html")]
struct BarChart {
    rows: Vec<Bars>,
}

/// The shares of the contenders of a target.
struct Bars {
    name: String,
    text: String,
    class: String,
    /// Left, top and right of each.
    bars: Vec<(String, String, String)>,
    mean: String,
}

/// Acquisitions of each contender over the mean, the greatest first.
fn shares(series: &Series) -> Vec<f64> {
    let count = series.samples.iter().map(|s| s.per_contender.len()).max();
    let mut sums = vec![0.0; count.unwrap_or(0)];
    for sample in &series.samples {
        for (sum, count) in sums.iter_mut().zip(&sample.per_contender) {
            *sum += *count as f64;
        }
    }
    sums.sort_by(|a, b| f64::total_cmp(b, a));
    let mean = (sums.iter().sum::<f64>() / sums.len() as f64).max(f64::MIN_POSITIVE);
    sums.into_iter().map(|sum| sum / mean).collect()
}

/// An axis whose values are on its scale already, such as logarithms.
struct Axis {
    title: &'static str,
    /// Where it begins and ends.
    pixels: Point,
    range: Point,
    marks: Vec<(f64, String)>,
}

/// Of the axes of every chart.
const ACROSS: Point = (58.0, 424.0);
const UP: Point = (242.0, 24.0);

impl Axis {
    /// The decimal logarithms of positive values, with one power of ten at least.
    fn log(title: &'static str, pixels: Point, ends: Spread, name: fn(f64) -> String) -> Self {
        let (mut from, mut to) = (ends.min.log10() - 0.05, ends.max.log10() + 0.05);
        if to - from < 1.0 {
            (from, to) = (from.floor(), to.ceil());
        }
        let steps: &[f64] = match to - from {
            span if span <= 1.1 => &[1.0, 2.0, 5.0],
            span if span <= 2.2 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let decades = (-3..16).map(|decade| 10f64.powi(decade));
        let marks = decades.flat_map(|decade| steps.iter().map(move |step| step * decade));
        let marks = marks.map(|value| (value.log10(), mark(&name(value))));
        let is_shown = |mark: &(f64, String)| (from - 1e-9..=to + 1e-9).contains(&mark.0);
        Self {
            title,
            pixels,
            range: (from, to),
            marks: marks.filter(is_shown).collect(),
        }
    }

    /// Where a value stands.
    fn place(&self, value: &f64) -> String {
        let ((low, high), (from, to)) = (self.pixels, self.range);
        pixels(low + (value - from) / (to - from) * (high - low))
    }
}

fn pixels(at: f64) -> String {
    format!("{at:.1}")
}

/// What stands at a mark: without digits behind the point that are all zeros.
fn mark(text: &str) -> String {
    let text = text.replace(".00", "").replace(".0 ", " ");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// The place of a share on an axis of shares that come ever closer to all.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

const SHARES: [&str; 5] = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"];

/// In `plots.css`.
const COLORS: usize = 8;
/// Width of every plot, at which its text has its usual size.
const WIDTH: f64 = 440.0;
/// Longer durations are left out of a distribution.
const MAX_SHARE: f64 = 0.999_9;
