//! A picture in the making. Places are pixels, of which plotters gets quarters: it rounds to whole
//! numbers.

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, ShapeStyle, TRANSPARENT, TextStyle};

use super::axis::Axis;
use super::ink::{Ink, paint};

/// Width of every picture, at which its text has its usual size.
pub(super) const WIDTH: f64 = 440.0;

/// Where to draw, in pixels from the upper left corner.
pub(super) struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

/// A point in pixels.
pub(super) type Point = (f64, f64);

/// Maps values of a pair of axes to pixels.
pub(super) type Places = Box<dyn Fn(f64, f64) -> Point>;

/// Where text begins or ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Align {
    Left,
    Right,
}

impl Canvas<'_> {
    /// Draws a picture of that height, and gives what stands between the tags of its SVG.
    pub(super) fn draw(height: f64, draw: impl FnOnce(&Canvas<'_>)) -> String {
        let mut svg = String::new();
        {
            let size = (units(WIDTH).unsigned_abs(), units(height).unsigned_abs());
            let backend = SVGBackend::with_string(&mut svg, size);
            let canvas = Canvas(backend.into_drawing_area());
            draw(&canvas);
            canvas.0.present().expect(IN_MEMORY);
        }
        let inside = svg.split_once('>').map_or("", |(_, inside)| inside);
        paint(inside.trim().trim_end_matches("</svg>").trim_end())
    }

    /// Draws axes between two heights.
    pub(super) fn axes(&self, (top, bottom): Point, x: &Axis, y: &Axis) -> Places {
        self.text((0.0, top), y.title, Ink::Muted, Align::Left);
        let below = units(self.height() - bottom);
        let area = self.0.margin(units(top + 24.0), below, 0, units(16.0));
        let left = if y.has_marks() { 58.0 } else { 1.0 };
        let mut chart = ChartBuilder::on(&area)
            .x_label_area_size(units(38.0))
            .y_label_area_size(units(left))
            .build_cartesian_2d(x.clone(), y.clone())
            .expect(IN_MEMORY);
        chart
            .configure_mesh()
            .axis_style(stroke(Ink::Muted, 1.0))
            .bold_line_style(stroke(Ink::Grid, 1.0))
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(units(3.0))
            .label_style(font(Ink::Muted))
            .axis_desc_style(font(Ink::Muted))
            .x_desc(x.title)
            .x_label_formatter(&|value| x.name(*value))
            .y_label_formatter(&|value| y.name(*value))
            .draw()
            .expect(IN_MEMORY);
        let spec = chart.as_coord_spec().clone();
        Box::new(move |x, y| {
            let (x, y) = plotters::coord::CoordTranslate::translate(&spec, &(x, y));
            (pixels(x), pixels(y))
        })
    }

    pub(super) fn line(&self, points: &[Point], ink: Ink, width: f64) {
        let points: Vec<_> = points.iter().map(place).collect();
        let path = PathElement::new(points, stroke(ink, width));
        self.0.draw(&path).expect(IN_MEMORY);
    }

    /// Fills a rectangle.
    pub(super) fn bar(&self, corners: [Point; 2], ink: Ink) {
        let bar = Rectangle::new(corners.map(|point| place(&point)), fill(ink, 1.0));
        self.0.draw(&bar).expect(IN_MEMORY);
    }

    /// Draws the edge of a rectangle.
    pub(super) fn frame(&self, [(left, top), (right, bottom)]: [Point; 2], ink: Ink) {
        let corners = [
            (left, top),
            (right, top),
            (right, bottom),
            (left, bottom),
            (left, top),
        ];
        self.line(&corners, ink, 1.5);
    }

    /// Draws a dot that others shine through.
    pub(super) fn dot(&self, at: Point, ink: Ink) {
        let dot = Circle::new(place(&at), units(4.0), fill(ink, 0.6));
        self.0.draw(&dot).expect(IN_MEMORY);
    }

    /// Draws the mark of a target: with its colour the shape changes, for those who see it less, and
    /// where colours begin again their shapes are others.
    pub(super) fn mark(&self, (x, y): Point, ink: Ink) {
        let number = match ink {
            Ink::Target(number) | Ink::Limit(number) => (number + number / Ink::COLORS) % 4,
            Ink::Dashes | Ink::Grid | Ink::Muted | Ink::Text => 0,
        };
        let corners: &[Point] = match number {
            0 => {
                let dot = Circle::new(place(&(x, y)), units(3.5), fill(ink, 1.0));
                return self.0.draw(&dot).expect(IN_MEMORY);
            }
            1 => &[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)],
            2 => &[(0.0, -4.2), (4.0, 3.2), (-4.0, 3.2)],
            _ => &[(0.0, -4.6), (4.6, 0.0), (0.0, 4.6), (-4.6, 0.0)],
        };
        let corners = corners.iter().map(|(dx, dy)| place(&(x + dx, y + dy)));
        let shape = Polygon::new(corners.collect::<Vec<_>>(), fill(ink, 1.0));
        self.0.draw(&shape).expect(IN_MEMORY);
    }

    /// Writes with the upper edge of the text at this height.
    pub(super) fn text(&self, at: Point, text: &str, ink: Ink, align: Align) {
        let horizontal = match align {
            Align::Left => HPos::Left,
            Align::Right => HPos::Right,
        };
        let style = font(ink).pos(Pos::new(horizontal, VPos::Top));
        let text = Text::new(text.to_owned(), place(&at), style);
        self.0.draw(&text).expect(IN_MEMORY);
    }

    fn height(&self) -> f64 {
        pixels(i32::try_from(self.0.dim_in_pixel().1).unwrap_or(i32::MAX))
    }
}

/// The width of text in pixels, roughly: the font is the one of the reader.
pub(super) fn width_of(text: &str) -> f64 {
    let count = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(count) * 8.0
}

fn font(ink: Ink) -> TextStyle<'static> {
    // The backend writes a size that is smaller by this factor.
    let size = TEXT * UNITS * 1.24;
    ("sans-serif", size).into_font().color(&ink.color())
}

fn stroke(ink: Ink, width: f64) -> ShapeStyle {
    let style = ShapeStyle::from(ink.color());
    style.stroke_width(units(width).unsigned_abs())
}

fn fill(ink: Ink, opacity: f64) -> ShapeStyle {
    ink.color().mix(opacity).filled()
}

fn place((x, y): &Point) -> (i32, i32) {
    (units(*x), units(*y))
}

fn units(pixels: f64) -> i32 {
    (pixels * UNITS).round() as i32
}

fn pixels(units: i32) -> f64 {
    f64::from(units) / UNITS
}

/// Height of text in pixels.
const TEXT: f64 = 12.5;
/// Units of a pixel.
pub(super) const UNITS: f64 = 4.0;
const IN_MEMORY: &str = "BUG: a picture in memory can be drawn";
