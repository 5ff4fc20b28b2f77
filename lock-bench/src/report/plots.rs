//! The plots of a report, as SVG. Places are pixels; a style sheet has the colors, so that a plot
//! follows the color scheme of its reader.

use std::fmt::Write as _;

use super::units::{duration, number};
use super::{Latencies, Report, Sample, Series, Spread, name_of};
use crate::plan::Workload;

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
    height: f64,
    inside: String,
}

type Point = (f64, f64);

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
            Workload::Uncontended | Workload::Layer => all.iter().min_by_key(contenders),
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
        let measured: Vec<_> = measured.collect();
        let ends = Spread::of(measured.iter().map(|(_, median)| *median))?;
        let mut steps: Vec<_> = self.plan.contenders.clone();
        steps.extend(measured.iter().map(|(s, _)| s.parameters.contenders));
        steps.sort_unstable();
        steps.dedup();
        let at = |n: u32| steps.partition_point(|step| *step < n) as f64;
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (series, median) in measured {
            let line = lines.iter().position(|line| line.target == series.target);
            let line = line.unwrap_or_else(|| {
                lines.push(Line::of(&series.target));
                lines.len() - 1
            });
            let point = (at(series.parameters.contenders), median.log10());
            lines[line].points.push(point);
            lines[line].marks.push(point);
            lines[line].text = format!("{}/s with {}", number(median), series.parameters);
        }
        let x = Axis {
            from: -0.4,
            to: steps.len() as f64 - 0.6,
            marks: steps.iter().map(|n| (at(*n), n.to_string())).collect(),
            title: "contenders",
        };
        let y = Axis::log("acquisitions per second", (ends.min, ends.max), number);
        let name = format!("throughput-{}", name_of(workload));
        let caption = "Medians of the repeats. Higher is better.";
        Some(self.chart([&name, title, caption], &lines, &x, &y))
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
        let ends = Spread::of(ends.flat_map(|(_, times)| [0.0, SHOWN].map(|s| at(times, s))))?;
        let lines = merged.iter().map(|(target, times)| {
            let [half, most] = [0.5, 0.99].map(|share| at(times, share));
            // Nobody knows how rare the longest of n is: it stands for half of its share.
            let last = nines(1.0 - 0.5 / times.len().max(1) as f64).min(nines(SHOWN));
            let points = times.distribution();
            let points = points.map(|(ns, share)| ((ns as f64).log10(), nines(share)));
            Line {
                target,
                points: points.take_while(|(_, y)| *y <= last).collect(),
                marks: vec![(half.log10(), nines(0.5))],
                text: format!("median {}, 99 % {}", duration(half), duration(most)),
            }
        });
        let x = Axis::log("time", (ends.min, ends.max), duration);
        let lines: Vec<_> = lines.collect();
        Some(self.chart([name, &title, &caption], &lines, &x, &Axis::nines()))
    }

    /// How often each contender got the lock, over the mean.
    fn fairness(&self) -> Option<Plot> {
        let mut sides = [Workload::Fairness, Workload::Contended, Workload::HandOff]
            .into_iter()
            .map(|workload| self.side(workload, |s| self.figures(s).jain.is_some()));
        let side = sides.find(|side| !side.is_empty())?;
        let (mut canvas, mut said) = (Canvas::default(), Vec::new());
        for (at, series) in side.iter().enumerate() {
            let (top, class) = (at as f64 * 96.0, self.class(&series.target));
            let text = format!("Jain {:.2}", self.figures(series).jain?.median);
            canvas.text((0.0, top + 12.0), "start", &series.target);
            canvas.text((WIDTH, top + 12.0), "end", &text);
            let shares = shares(series);
            let step = WIDTH / shares.len() as f64;
            let scale = 66.0 / shares.iter().copied().fold(1.25, f64::max);
            let (down, mean) = (top + 84.0, top + 84.0 - scale);
            for (at, share) in shares.into_iter().enumerate() {
                let (left, right) = (at as f64 * step, (at as f64 + 0.8) * step);
                let up = down - scale * share;
                let corners = [(left, up), (right, up), (right, down), (left, down)];
                canvas.path(&format!("fill {class}"), &corners, "Z");
            }
            canvas.path("line axis bare", &[(0.0, mean), (WIDTH, mean)], "");
            said.push(format!("{} {text}", series.target));
        }
        let title = format!("Acquisitions of each contender, {}", side[0].parameters);
        let caption = "Level is better. Dashed: the same for all, where Jain's index is 1.";
        Some(canvas.plot(
            ["fairness", &title, caption],
            side.len() as f64 * 96.0,
            &said,
        ))
    }

    /// Lines over two axes, with a legend.
    fn chart(&self, names: [&str; 3], lines: &[Line<'_>], x: &Axis, y: &Axis) -> Plot {
        let mut canvas = Canvas::default();
        let legend = lines.iter().map(|l| (l.target, self.class(l.target)));
        let mut legend: Vec<_> = legend.collect();
        legend.retain(|(_, class)| !class.ends_with(BARE));
        if legend.len() < lines.len() {
            legend.push(("bare commands", format!("axis{BARE}")));
        }
        for (at, (name, class)) in legend.iter().enumerate() {
            let (x, y) = ((at % 2) as f64 * WIDTH / 2.0, (at / 2) as f64 * 18.0);
            canvas.path(
                &format!("line {class}"),
                &[(x, y + 7.0), (x + 20.0, y + 7.0)],
                "",
            );
            canvas.mark((x + 10.0, y + 7.0), class);
            canvas.text((x + 26.0, y + 12.0), "start", name);
        }
        let top = legend.len().div_ceil(2) as f64 * 18.0 + 8.0;
        let ((left, right), (up, down)) = ((58.0, WIDTH - 16.0), (top + 24.0, top + 242.0));
        canvas.text((0.0, top + 12.0), "start", y.title);
        canvas.text(((left + right) / 2.0, down + 36.0), "middle", x.title);
        for (value, name) in &x.marks {
            let at = x.place(*value, left, right);
            canvas.path("line grid", &[(at, up), (at, down)], "");
            canvas.text((at, down + 17.0), "middle", name);
        }
        for (value, name) in &y.marks {
            let at = y.place(*value, down, up);
            canvas.path("line grid", &[(left, at), (right, at)], "");
            canvas.text((left - 6.0, at + 4.0), "end", name);
        }
        let place = |point: &Point| (x.place(point.0, left, right), y.place(point.1, down, up));
        for line in lines {
            let class = self.class(line.target);
            let points: Vec<_> = line.points.iter().map(place).collect();
            canvas.path(&format!("line {class}"), &points, "");
            line.marks
                .iter()
                .for_each(|mark| canvas.mark(place(mark), &class));
        }
        let said = lines
            .iter()
            .map(|line| format!("{} {}", line.target, line.text));
        canvas.plot(names, top + 280.0, &said.collect::<Vec<_>>())
    }

    /// The class of a target, the same in all plots; that of its bare commands is drawn dashed.
    pub(super) fn class(&self, name: &str) -> String {
        let of = self.target(name).and_then(|target| target.bare_of());
        let mut own = self.targets.iter().filter(|t| t.bare_of().is_none());
        let at = own.position(|own| own.name == of.unwrap_or(name));
        let number = at.unwrap_or_default() % COLORS.len();
        format!("t{number}{}", if of.is_some() { BARE } else { "" })
    }
}

const BARE: &str = " bare";

struct Line<'a> {
    target: &'a str,
    points: Vec<Point>,
    marks: Vec<Point>,
    text: String,
}

impl<'a> Line<'a> {
    fn of(target: &'a str) -> Self {
        Self {
            target,
            points: Vec::new(),
            marks: Vec::new(),
            text: String::new(),
        }
    }
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

impl Plot {
    /// The plot as a file of its own.
    #[must_use]
    pub fn to_file(&self) -> String {
        let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
        let (width, height) = (WIDTH + 16.0, self.height + 16.0);
        let place =
            format!("width=\"{width}\" height=\"{height}\" viewBox=\"-8 -8 {width} {height}\"");
        let background = "@media(prefers-color-scheme:dark){svg{background:#15181c}}";
        let style = format!("<style>{background}{}</style>", style_sheet());
        self.svg(&format!("{namespace} {place}"), &style)
    }

    /// The plot as a part of a page that has the style sheet.
    pub(super) fn to_element(&self) -> String {
        self.svg(&format!("viewBox=\"0 0 {WIDTH} {}\"", self.height), "")
    }

    fn svg(&self, attributes: &str, style: &str) -> String {
        let (alt, inside) = (escaped(&self.alt), &self.inside);
        format!("<svg {attributes} role=\"img\"><title>{alt}</title>{style}\n{inside}</svg>\n")
    }
}

/// Elements of an SVG.
#[derive(Default)]
struct Canvas(String);

impl Canvas {
    /// A line through points, or around them if `end` is `Z`.
    fn path(&mut self, class: &str, points: &[Point], end: &str) {
        let points = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
        let points = points.collect::<Vec<_>>().join("L");
        self.add(format_args!(
            "<path class=\"{class}\" d=\"M{points}{end}\"/>"
        ));
    }

    /// Targets differ in the shape of their marks too, for readers who see colors less.
    fn mark(&mut self, (x, y): Point, class: &str) {
        const SHAPES: [&str; 4] = [
            "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
            "m-3.2 -3.2h6.4v6.4h-6.4z",
            "m0 -4.2l4 7.4h-8z",
            "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
        ];
        let number = class
            .strip_prefix('t')
            .and_then(|n| n.parse::<usize>().ok());
        if let Some(number) = number {
            let shape = SHAPES[number % SHAPES.len()];
            self.add(format_args!(
                "<path class=\"fill {class}\" d=\"M{x:.1} {y:.1}{shape}\"/>"
            ));
        }
    }

    /// Writes at this point, at most as much as fits beside the other half.
    fn text(&mut self, (x, y): Point, anchor: &str, text: &str) {
        let text = match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}..", &text[..end]),
            None => text.to_owned(),
        };
        let text = escaped(&text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("BUG: text in memory can be added to");
    }

    fn plot(self, [name, title, caption]: [&str; 3], height: f64, said: &[String]) -> Plot {
        Plot {
            name: name.to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            alt: format!("{title}: {}", said.join("; ")),
            height,
            inside: self.0,
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// An axis whose values are on its scale already, such as logarithms.
struct Axis {
    from: f64,
    to: f64,
    marks: Vec<(f64, String)>,
    title: &'static str,
}

impl Axis {
    /// The decimal logarithms of positive values, with one power of ten at least.
    fn log(title: &'static str, (min, max): Point, name: fn(f64) -> String) -> Self {
        let (mut from, mut to) = (min.log10() - 0.05, max.log10() + 0.05);
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
            from,
            to,
            marks: marks.filter(is_shown).collect(),
            title,
        }
    }

    /// Shares that come ever closer to all, as [`nines`] places them.
    fn nines() -> Self {
        let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"].map(str::to_owned);
        Self {
            from: 0.0,
            to: 4.15,
            marks: (0..5).map(f64::from).zip(names).collect(),
            title: "share that is not longer",
        }
    }

    /// Where a value stands between two places.
    fn place(&self, value: f64, low: f64, high: f64) -> f64 {
        low + (value - self.from) / (self.to - self.from) * (high - low)
    }
}

/// What stands at a mark: without digits behind the point that are all zeros.
fn mark(text: &str) -> String {
    let text = text.replace(".00", "").replace(".0 ", " ");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// Colors on a light and on a dark page; told apart by people with any kind of color vision, and at
/// a contrast of 3 or more to the page.
const COLORS: [(&str, &str); 8] = [
    ("#0072b2", "#56b4e8"),
    ("#d55e00", "#ff9248"),
    ("#00846a", "#2fd0a4"),
    ("#b0308c", "#f19ad2"),
    ("#5a1212", "#f2f05a"),
    ("#7b61fe", "#8f6bfe"),
    ("#828a92", "#b8b8b8"),
    ("#001798", "#e0566e"),
];

/// The colors of all plots.
pub(super) fn style_sheet() -> String {
    let mut all = "svg text{font:12.5px system-ui,sans-serif;fill:#1b1f24}\
        .line{fill:none;stroke:currentColor;stroke-width:2}.fill{fill:currentColor}\
        .bare{stroke-dasharray:5 3.5}.fill.bare{fill:none;stroke:currentColor}\
        .axis{color:#5c6670}.grid{color:#dfe3e8;stroke-width:1}"
        .to_owned();
    let mut dark = "svg text{fill:#e8eaed}.axis{color:#a3adb8}.grid{color:#353b43}".to_owned();
    for (at, (light, shade)) in COLORS.iter().enumerate() {
        all += &format!(".t{at}{{color:{light}}}");
        dark += &format!(".t{at}{{color:{shade}}}");
    }
    format!("{all}@media(prefers-color-scheme:dark){{{dark}}}")
}

/// Width of every plot, at which its text has its usual size.
const WIDTH: f64 = 440.0;
/// Characters of a name.
const LONGEST: usize = 32;
/// Longer durations are left out of a distribution.
const SHOWN: f64 = 0.999_9;
