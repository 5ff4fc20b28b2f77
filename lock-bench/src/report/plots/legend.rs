//! What the colours stand for, above a picture.

use super::canvas::{Align, Canvas, WIDTH, width_of};
use super::ink::Ink;

/// Names of targets with their inks, and names of dashed lines.
pub(super) struct Legend(Vec<(String, Ink)>);

impl Legend {
    /// A legend of these, without those that are there already.
    pub(super) fn new(entries: impl IntoIterator<Item = (String, Ink)>) -> Self {
        let mut kept: Vec<(String, Ink)> = Vec::new();
        for entry in entries {
            if !kept.contains(&entry) {
                kept.push(entry);
            }
        }
        Self(kept)
    }

    /// Its height in pixels.
    pub(super) fn height(&self) -> f64 {
        let last = self.places().last().map_or(0.0, |(_, y)| y + LINE);
        last + 6.0
    }

    pub(super) fn draw(&self, canvas: &Canvas<'_>) {
        for ((x, y), (name, ink)) in self.places().zip(&self.0) {
            let middle = y + 7.0;
            canvas.line(&[(x, middle), (x + 20.0, middle)], *ink, 2.0);
            if matches!(ink, Ink::Target(_)) {
                canvas.mark((x + 10.0, middle), *ink);
            }
            canvas.text((x + 26.0, y), &short(name), Ink::Text, Align::Left);
        }
    }

    fn places(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let mut next = (0.0, 0.0);
        self.0.iter().map(move |(name, _)| {
            let width = 26.0 + width_of(&short(name)) + 14.0;
            if next.0 > 0.0 && next.0 + width - 14.0 > WIDTH {
                next = (0.0, next.1 + LINE);
            }
            let place = next;
            next.0 += width;
            place
        })
    }
}

/// A name that fits into a picture.
pub(super) fn short(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}..", &name[..end]),
        None => name.to_owned(),
    }
}

const LINE: f64 = 18.0;
const LONGEST: usize = 36;
