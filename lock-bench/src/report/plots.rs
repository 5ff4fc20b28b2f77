//! The plots of a report, as SVG. Places are pixels; plotters gets quarters of them, because it
//! rounds to whole numbers.

use std::fmt::Write as _;
use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::{CoordTranslate as _, Shift};
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, IntoFont as _, RGBColor, ShapeStyle, TRANSPARENT, TextStyle};

use super::units::{duration, number};
use super::{Latencies, Report, Sample, Series, Spread, TargetKind, name_of};
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
        let all = self.series.iter();
        let all: Vec<_> = all
            .filter(|s| s.workload == workload && has_it(s))
            .collect();
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
        let measured: Vec<_> = measured
            .filter_map(|s| Some((s, self.figures(s).throughput?.median)))
            .collect();
        let ends = Spread::of(measured.iter().map(|(_, median)| *median))?;
        let mut steps: Vec<_> = self.plan.contenders.clone();
        steps.extend(measured.iter().map(|(s, _)| s.parameters.contenders));
        steps.sort_unstable();
        steps.dedup();
        let at = |n: u32| steps.partition_point(|step| *step < n) as f64;
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (series, median) in measured {
            let target = &*series.target;
            let point = (at(series.parameters.contenders), median.log10());
            let text = format!("{}/s with {}", number(median), series.parameters);
            match lines.iter_mut().find(|line| line.target == target) {
                Some(line) => {
                    line.points.push(point);
                    line.text = text;
                }
                None => lines.push(Line {
                    target,
                    points: vec![point],
                    marks: Vec::new(),
                    text,
                }),
            }
        }
        for line in &mut lines {
            line.marks.clone_from(&line.points);
        }
        let x = Axis {
            from: -0.4,
            to: steps.len() as f64 - 0.6,
            marks: steps.iter().map(|n| (at(*n), n.to_string())).collect(),
            title: "contenders",
        };
        let y = Axis::log("acquisitions per second", (ends.min, ends.max), number);
        let name = format!("throughput-{}", name_of(workload));
        let plot = Plot::new(name, title, "Medians of the repeats. Higher is better.");
        Some(self.chart(plot, &lines, &x, &y))
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
        let merged = side
            .iter()
            .map(|series| (&*series.target, series.merged(of)));
        let merged: Vec<_> = merged.collect();
        let quantile = |share| {
            let all = merged.iter();
            all.filter_map(move |(_, times)| times.quantile_ns(share).map(|ns| ns as f64))
        };
        let ends = Spread::of(quantile(0.0).chain(quantile(SHOWN)))?;
        let lines = merged.iter().map(|(target, times)| {
            let at = |share| times.quantile_ns(share).unwrap_or_default() as f64;
            // Nobody knows how rare the longest of n is: it stands for half of its share.
            let last = nines(1.0 - 0.5 / times.len().max(1) as f64).min(nines(SHOWN));
            let points = times.distribution();
            let points = points.map(|(ns, share)| ((ns as f64).log10(), nines(share)));
            Line {
                target,
                points: points.take_while(|(_, y)| *y <= last).collect(),
                marks: vec![(at(0.5).log10(), nines(0.5))],
                text: format!("median {}, 99 % {}", duration(at(0.5)), duration(at(0.99))),
            }
        });
        let x = Axis::log("time", (ends.min, ends.max), duration);
        let plot = Plot::new(name, title, &caption);
        Some(self.chart(plot, &lines.collect::<Vec<_>>(), &x, &Axis::nines()))
    }

    /// How often each contender got the lock, over the mean.
    fn fairness(&self) -> Option<Plot> {
        let mut sides = [Workload::Fairness, Workload::Contended, Workload::HandOff]
            .into_iter()
            .map(|workload| self.side(workload, |s| self.figures(s).jain.is_some()));
        let side = sides.find(|side| !side.is_empty())?;
        let jain = |series: &&Series| Some(self.figures(series).jain?.median);
        let texts = side
            .iter()
            .filter_map(jain)
            .map(|jain| format!("Jain {jain:.2}"));
        let texts: Vec<_> = texts.collect();
        let named = side.iter().map(|series| &*series.target);
        let said = named.zip(texts.iter().map(String::as_str));
        let title = format!("Acquisitions of each contender, {}", side[0].parameters);
        let caption = "Level is better. Dashed: the same for all, where Jain's index is 1.";
        let plot = Plot::new("fairness", title, caption);
        Some(
            plot.drawn(96.0 * side.len() as f64, said.clone(), |canvas| {
                for ((at, series), (name, text)) in (0_u32..).zip(&side).zip(said) {
                    let (top, color) = (f64::from(at) * 96.0, self.color(name));
                    canvas.text((0.0, top), name, TEXT, HPos::Left);
                    canvas.text((WIDTH, top), text, TEXT, HPos::Right);
                    let shares = series.shares();
                    let step = WIDTH / shares.len() as f64;
                    let scale = 66.0 / shares.iter().copied().fold(1.25, f64::max);
                    let y = |share: f64| top + 84.0 - scale * share;
                    for (at, share) in (0_u32..).map(f64::from).zip(shares) {
                        canvas.bar([(at * step, y(share)), ((at + 0.8) * step, y(0.0))], color);
                    }
                    canvas.line(&[(0.0, y(1.0)), (WIDTH, y(1.0))], dashed(MUTED), 1.5);
                }
            }),
        )
    }

    /// Lines over two axes, with a legend.
    fn chart(&self, plot: Plot, lines: &[Line<'_>], x: &Axis, y: &Axis) -> Plot {
        let mut legend: Vec<_> = lines
            .iter()
            .map(|l| (l.target, self.color(l.target)))
            .collect();
        legend.retain(|(_, color)| !is_dashed(*color));
        if legend.len() < lines.len() {
            legend.push(("bare commands", dashed(MUTED)));
        }
        let top = legend.len().div_ceil(2) as f64 * 18.0 + 8.0;
        let said = lines.iter().map(|line| (line.target, line.text.as_str()));
        plot.drawn(top + 280.0, said, |canvas| {
            for (at, (name, color)) in legend.iter().enumerate() {
                let (x, y) = (
                    if at % 2 == 0 { 0.0 } else { WIDTH / 2.0 },
                    (at / 2) as f64 * 18.0,
                );
                canvas.line(&[(x, y + 7.0), (x + 20.0, y + 7.0)], *color, 2.0);
                canvas.mark((x + 10.0, y + 7.0), *color);
                canvas.text((x + 26.0, y), name, TEXT, HPos::Left);
            }
            let place = canvas.axes((top, top + 280.0), x, y);
            for line in lines {
                let color = self.color(line.target);
                let points: Vec<_> = line.points.iter().copied().map(&place).collect();
                canvas.line(&points, color, 2.0);
                line.marks
                    .iter()
                    .for_each(|mark| canvas.mark(place(*mark), color));
            }
        })
    }

    /// The color of a target, the same in all plots; its bare commands have it dashed.
    pub(super) fn color(&self, name: &str) -> RGBColor {
        let of = match self.target(name).map(|target| &target.kind) {
            Some(TargetKind::Bare { of, .. }) => Some(of),
            _ => None,
        };
        let own = self
            .targets
            .iter()
            .filter(|t| !matches!(t.kind, TargetKind::Bare { .. }));
        let at = own
            .map(|t| &*t.name)
            .position(|own| own == of.map_or(name, String::as_str));
        let color = TARGETS[at.unwrap_or_default() % TARGETS.len()].0;
        if of.is_some() { dashed(color) } else { color }
    }
}

struct Line<'a> {
    target: &'a str,
    points: Vec<Point>,
    marks: Vec<Point>,
    text: String,
}

impl Series {
    fn merged(&self, of: fn(&Sample) -> &Latencies) -> Latencies {
        let mut all = Latencies::default();
        self.samples.iter().for_each(|sample| all.merge(of(sample)));
        all
    }

    /// Acquisitions of each contender over the mean, the greatest first.
    fn shares(&self) -> Vec<f64> {
        let count = self
            .samples
            .iter()
            .map(|sample| sample.per_contender.len())
            .max();
        let mut sums = vec![0.0; count.unwrap_or(0)];
        for sample in &self.samples {
            for (sum, count) in sums.iter_mut().zip(&sample.per_contender) {
                *sum += *count as f64;
            }
        }
        sums.sort_by(|a, b| f64::total_cmp(b, a));
        let mean = (sums.iter().sum::<f64>() / sums.len() as f64).max(f64::MIN_POSITIVE);
        sums.into_iter().map(|sum| sum / mean).collect()
    }
}

impl Plot {
    fn new(name: impl Into<String>, title: impl Into<String>, caption: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            caption: caption.to_owned(),
            alt: String::new(),
            height: 0.0,
            inside: String::new(),
        }
    }

    fn drawn<'a>(
        mut self,
        height: f64,
        said: impl Iterator<Item = (&'a str, &'a str)>,
        draw: impl FnOnce(&Canvas<'_>),
    ) -> Self {
        let said: Vec<_> = said.map(|(name, text)| format!("{name} {text}")).collect();
        self.alt = format!("{}: {}", self.title, said.join("; "));
        self.height = height;
        let mut svg = String::new();
        {
            let size = [WIDTH, height].map(|length| units(length).unsigned_abs());
            let backend = SVGBackend::with_string(&mut svg, (size[0], size[1]));
            let canvas = Canvas(backend.into_drawing_area());
            draw(&canvas);
            canvas.0.present().expect(IN_MEMORY);
        }
        let inside = svg.split_once('>').map_or("", |(_, inside)| inside);
        inside
            .trim()
            .trim_end_matches("</svg>")
            .trim_end()
            .clone_into(&mut self.inside);
        self
    }

    /// The plot as a file of its own.
    #[must_use]
    pub fn to_file(&self) -> String {
        let (width, height) = (WIDTH + 2.0 * MARGIN, self.height + 2.0 * MARGIN);
        let attributes =
            format!("xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\"");
        let style = "<style>@media(prefers-color-scheme:dark){svg{background:#15181c}}";
        self.svg(
            &attributes,
            MARGIN,
            &format!("{style}{}</style>", style_sheet()),
        )
    }

    /// The plot as a part of a page that has the style sheet.
    pub(super) fn to_element(&self) -> String {
        self.svg("", 0.0, "")
    }

    fn svg(&self, attributes: &str, margin: f64, style: &str) -> String {
        let from = -margin * UNITS;
        let [width, height] = [WIDTH, self.height].map(|length| (length + 2.0 * margin) * UNITS);
        let alt = self
            .alt
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let inside = &self.inside;
        format!(
            "<svg {attributes} viewBox=\"{from} {from} {width} {height}\" role=\"img\">\
             <title>{alt}</title>{style}\n{inside}\n</svg>\n"
        )
    }
}

type Point = (f64, f64);

struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

impl Canvas<'_> {
    /// Draws axes between two heights; maps their values to pixels.
    fn axes(&self, (top, bottom): Point, x: &Axis, y: &Axis) -> impl Fn(Point) -> Point + use<> {
        self.text((0.0, top), y.title, MUTED, HPos::Left);
        let below = i32::try_from(self.0.dim_in_pixel().1).unwrap_or(i32::MAX) - units(bottom);
        let area = self.0.margin(units(top + 24.0), below, 0, units(16.0));
        let mut chart = ChartBuilder::on(&area)
            .x_label_area_size(units(38.0))
            .y_label_area_size(units(58.0))
            .build_cartesian_2d(x.clone(), y.clone())
            .expect(IN_MEMORY);
        let mut mesh = chart.configure_mesh();
        mesh.axis_style(stroke(MUTED, 1.0))
            .bold_line_style(stroke(GRID, 1.0))
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(units(3.0))
            .label_style(font(MUTED))
            .axis_desc_style(font(MUTED))
            .x_desc(x.title)
            .x_label_formatter(&|value| x.name(*value))
            .y_label_formatter(&|value| y.name(*value))
            .draw()
            .expect(IN_MEMORY);
        let places = chart.as_coord_spec().clone();
        move |point| {
            let (x, y) = places.translate(&point);
            (f64::from(x) / UNITS, f64::from(y) / UNITS)
        }
    }

    fn line(&self, points: &[Point], color: RGBColor, width: f64) {
        let points: Vec<_> = points.iter().copied().map(place).collect();
        self.0
            .draw(&PathElement::new(points, stroke(color, width)))
            .expect(IN_MEMORY);
    }

    /// A filled rectangle, or a dashed frame for bare commands.
    fn bar(&self, [(left, top), (right, bottom)]: [Point; 2], color: RGBColor) {
        if is_dashed(color) {
            let around = [
                (left, top),
                (right, top),
                (right, bottom),
                (left, bottom),
                (left, top),
            ];
            return self.line(&around, color, 1.5);
        }
        let corners = [(left, top), (right, bottom)].map(place);
        self.0
            .draw(&Rectangle::new(corners, color.filled()))
            .expect(IN_MEMORY);
    }

    /// Targets differ in the shape of their marks too, for readers who see colors less.
    fn mark(&self, (x, y): Point, color: RGBColor) {
        let Some(number) = TARGETS.iter().position(|target| target.0 == color) else {
            return;
        };
        let corners: &[Point] = match number % 4 {
            0 => {
                let dot = Circle::new(place((x, y)), units(3.5), color.filled());
                return self.0.draw(&dot).expect(IN_MEMORY);
            }
            1 => &[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)],
            2 => &[(0.0, -4.2), (4.0, 3.2), (-4.0, 3.2)],
            _ => &[(0.0, -4.6), (4.6, 0.0), (0.0, 4.6), (-4.6, 0.0)],
        };
        let corners: Vec<_> = corners
            .iter()
            .map(|(dx, dy)| place((x + dx, y + dy)))
            .collect();
        self.0
            .draw(&Polygon::new(corners, color.filled()))
            .expect(IN_MEMORY);
    }

    /// Writes below this point, at most as much as fits beside the other half.
    fn text(&self, at: Point, text: &str, color: RGBColor, horizontal: HPos) {
        let text = match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}..", &text[..end]),
            None => text.to_owned(),
        };
        let style = font(color).pos(Pos::new(horizontal, VPos::Top));
        self.0
            .draw(&Text::new(text, place(at), style))
            .expect(IN_MEMORY);
    }
}

/// An axis whose values are on its scale already, such as logarithms.
#[derive(Clone, Debug)]
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
        let marks = marks.map(|value| (value.log10(), mark(name(value))));
        let marks = marks
            .filter(|(at, _)| (from - 1e-9..=to + 1e-9).contains(at))
            .collect();
        Self {
            from,
            to,
            marks,
            title,
        }
    }

    /// Shares that come ever closer to all, as [`nines`] places them.
    fn nines() -> Self {
        let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"].map(str::to_owned);
        let marks = (0..5).map(f64::from).zip(names).collect();
        Self {
            from: 0.0,
            to: 4.15,
            marks,
            title: "share that is not longer",
        }
    }

    fn name(&self, value: f64) -> String {
        let mark = self.marks.iter().find(|(at, _)| (at - value).abs() < 1e-9);
        mark.map(|(_, name)| name.clone()).unwrap_or_default()
    }
}

/// Marks stand where they were put; plotters would choose its own.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.marks.iter().map(|(at, _)| *at).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// What stands at a mark: without digits behind the point that are all zeros.
fn mark(text: String) -> String {
    match text.split_once('.') {
        Some((whole, rest)) => {
            let rest = rest.trim_start_matches('0');
            match rest.starts_with(|c: char| c.is_ascii_digit()) {
                true => text,
                false => format!("{whole}{rest}"),
            }
        }
        None => text,
    }
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// Colors on a light and on a dark page; told apart by people with any kind of color vision, and at
/// a contrast of 3 or more to the page.
const TARGETS: [(RGBColor, RGBColor); 8] = [
    (rgb(0x00_72b2), rgb(0x56_b4e8)),
    (rgb(0xd5_5e00), rgb(0xff_9248)),
    (rgb(0x00_846a), rgb(0x2f_d0a4)),
    (rgb(0xb0_308c), rgb(0xf1_9ad2)),
    (rgb(0x5a_1212), rgb(0xf2_f05a)),
    (rgb(0x7b_61fe), rgb(0x8f_6bfe)),
    (rgb(0x82_8a92), rgb(0xb8_b8b8)),
    (rgb(0x00_1798), rgb(0xe0_566e)),
];
const TEXT: RGBColor = rgb(0x1b_1f24);
const MUTED: RGBColor = rgb(0x5c_6670);
const GRID: RGBColor = rgb(0xdf_e3e8);
const OTHERS: [(RGBColor, RGBColor); 3] = [
    (TEXT, rgb(0xe8_eaed)),
    (MUTED, rgb(0xa3_adb8)),
    (GRID, rgb(0x35_3b43)),
];

const fn rgb(code: u32) -> RGBColor {
    let [_, red, green, blue] = code.to_be_bytes();
    RGBColor(red, green, blue)
}

/// The same color to the eye; the style sheet knows it by its last bit, which others do not have.
fn dashed(color: RGBColor) -> RGBColor {
    RGBColor(color.0, color.1, color.2 | 1)
}

pub(super) fn is_dashed(color: RGBColor) -> bool {
    color.2 & 1 == 1
}

pub(super) fn hex(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

/// Gives the colors of a drawing their dashes and, on a dark page, their other shade.
pub(super) fn style_sheet() -> String {
    let (mut all, mut dark) = (
        "svg text{font-family:system-ui,sans-serif}".to_owned(),
        String::new(),
    );
    for (light, shade) in TARGETS.into_iter().chain(OTHERS) {
        let (line, plain, shade) = (hex(dashed(light)), hex(light), hex(shade));
        write!(all, "[stroke='{line}']{{stroke-dasharray:20 14}}").expect(IN_MEMORY);
        write!(
            dark,
            "[fill='{plain}']{{fill:{shade}}}[stroke='{plain}'],[stroke='{line}']{{stroke:{shade}}}"
        )
        .expect(IN_MEMORY);
    }
    format!("{all}@media(prefers-color-scheme:dark){{{dark}}}")
}

fn font(color: RGBColor) -> TextStyle<'static> {
    // The backend writes a size that is smaller by the last factor.
    ("sans-serif", 12.5 * UNITS * 1.24)
        .into_font()
        .color(&color)
}

fn stroke(color: RGBColor, width: f64) -> ShapeStyle {
    ShapeStyle::from(color).stroke_width(units(width).unsigned_abs())
}

fn place((x, y): Point) -> (i32, i32) {
    (units(x), units(y))
}

fn units(pixels: f64) -> i32 {
    (pixels * UNITS).round() as i32
}

/// Width of every plot, at which its text has its usual size.
const WIDTH: f64 = 440.0;
/// Around a plot that stands alone.
const MARGIN: f64 = 8.0;
const UNITS: f64 = 4.0;
/// Characters of a name.
const LONGEST: usize = 32;
/// Longer durations are left out of a distribution.
const SHOWN: f64 = 0.999_9;
const IN_MEMORY: &str = "BUG: a plot is drawn in memory";
