//! Gathers what is wrong, so that all of it is told at once.

use super::lines::Lines;
use super::mistake::Mistake;
use super::place::{At, Origin};

/// What is wrong so far.
#[derive(Debug)]
pub(super) struct Report<'t> {
    file: &'t str,
    pub(super) lines: Lines<'t>,
    mistakes: Vec<(At, String)>,
    warnings: Vec<(At, String)>,
}

impl<'t> Report<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            lines: Lines::new(text),
            mistakes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(super) fn mistake(&mut self, at: &At, message: impl Into<String>) {
        note(&mut self.mistakes, at, message.into());
    }

    pub(super) fn warning(&mut self, at: &At, message: impl Into<String>) {
        note(&mut self.warnings, at, message.into());
    }

    pub(super) fn origin(&self, at: &At) -> Origin {
        self.lines.origin(at)
    }

    /// The mistakes and the warnings. Lines are quoted here, when all is known that may be shown.
    pub(super) fn finish(self) -> (Vec<Mistake>, Vec<Mistake>) {
        let told = |mut notes: Vec<(At, String)>| {
            notes.sort_by_key(|(at, _)| match at {
                At::Span(span) => (0, span.start),
                _ => (1, 0),
            });
            let notes = notes.into_iter().map(|(at, message)| Mistake {
                file: self.file.to_owned(),
                origin: self.lines.origin(&at),
                message,
                quote: match &at {
                    At::Span(span) => Some(self.lines.quote(span)),
                    _ => None,
                },
            });
            notes.collect()
        };
        (told(self.mistakes), told(self.warnings))
    }
}

/// A value that is used in several places is wrong once.
fn note(notes: &mut Vec<(At, String)>, at: &At, message: String) {
    if !notes
        .iter()
        .any(|note| (&note.0, &note.1) == (at, &message))
    {
        notes.push((at.clone(), message));
    }
}
