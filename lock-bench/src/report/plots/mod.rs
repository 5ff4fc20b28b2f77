//! The pictures of a report, as SVG.

mod axis;
mod bars;
mod canvas;
mod distribution;
mod dots;
mod ink;
mod legend;
mod lines;
mod select;
mod shares;
mod timeline;

pub(crate) use self::ink::{Ink, style};
pub(crate) use self::select::ink_of;

use self::canvas::{Canvas, UNITS, WIDTH};
use super::Report;

/// A picture of a report. It follows the colour scheme of the reader and needs nothing else.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Plot {
    /// A name that fits a file, such as `throughput-contended`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// Its figures in words, for those who do not see it.
    pub alt: String,
    height: f64,
    inside: String,
}

impl Report {
    /// Draws everything that was measured.
    #[must_use]
    pub fn plots(&self) -> Vec<Plot> {
        let mut plots = Vec::new();
        plots.extend(bars::round_trips(self));
        plots.extend(lines::throughput(self));
        plots.extend(distribution::acquire(self));
        plots.extend(distribution::hand_off(self));
        plots.extend(shares::fairness(self));
        plots.extend(bars::commands(self));
        plots.extend(lines::efficiency(self));
        plots.extend(dots::recovery(self));
        plots.extend(bars::layer(self));
        plots.extend(timeline::turns(self));
        plots
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

    fn with_alt(mut self, parts: impl IntoIterator<Item = String>) -> Self {
        let parts: Vec<_> = parts.into_iter().collect();
        self.alt = format!("{}: {}", self.title, parts.join("; "));
        self
    }

    fn drawn(mut self, height: f64, draw: impl FnOnce(&Canvas<'_>)) -> Self {
        self.height = height;
        self.inside = Canvas::draw(height, draw);
        self
    }

    /// The picture as a file of its own.
    #[must_use]
    pub fn to_file(&self) -> String {
        let (alt, style, inside) = (text(&self.alt), style(), &self.inside);
        let (width, height) = (WIDTH + 2.0 * MARGIN, self.height + 2.0 * MARGIN);
        let view = self.view(MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"{view}\" role=\"img\">\n<title>{alt}</title>\n<style>{style}{TEXT_STYLE}\
             @media(prefers-color-scheme:dark){{svg{{background:#15181c}}}}</style>\n{inside}\n\
             </svg>\n"
        )
    }

    /// The picture as a part of a page that has the style sheet.
    pub(crate) fn to_element(&self) -> String {
        let (alt, view, inside) = (text(&self.alt), self.view(0.0), &self.inside);
        format!("<svg viewBox=\"{view}\" role=\"img\"><title>{alt}</title>\n{inside}\n</svg>")
    }

    fn view(&self, margin: f64) -> String {
        let from = 0.0 - margin * UNITS;
        let (width, height) = (WIDTH + 2.0 * margin, self.height + 2.0 * margin);
        format!("{from} {from} {} {}", width * UNITS, height * UNITS)
    }
}

/// Text between tags.
fn text(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Around a picture that stands alone, in pixels.
const MARGIN: f64 = 8.0;

pub(crate) const TEXT_STYLE: &str = "text{font-family:system-ui,sans-serif}";
