//! Lines of the file as they may be shown: with a mark, and without what could be a password.

use std::fmt;

use super::place::{At, Origin, Span};

/// The text of a file, and what of its values may be shown.
///
/// A value is hidden until somebody says how it looks, and comments are left out.
#[derive(Debug)]
pub(super) struct Lines<'t> {
    text: &'t str,
    /// Values in the order of the text.
    values: Vec<(Span, String)>,
    is_understood: bool,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            values: Vec::new(),
            is_understood: false,
        }
    }

    /// Hides the values, and lets the rest be shown: it is known where values are.
    pub(super) fn understand(&mut self, mut values: Vec<Span>) {
        values.sort_by_key(|span| span.start);
        let hidden = values.into_iter().map(|span| (span, HIDDEN.to_owned()));
        self.values = hidden.collect();
        self.is_understood = true;
    }

    /// Says how a value looks.
    pub(super) fn show_as(&mut self, span: &Span, shown: String) {
        let value = self.values.iter_mut().find(|(value, _)| value == span);
        if let Some((_, look)) = value {
            *look = shown;
        }
    }

    /// Shows a value as it is written.
    pub(super) fn show(&mut self, span: &Span) {
        let written = self.text[span.clone()].to_owned();
        self.show_as(span, written);
    }

    pub(super) fn origin(&self, at: &At) -> Origin {
        match at {
            At::Default | At::File => Origin::Default,
            At::Environment(variable) => Origin::Environment {
                variable: variable.clone(),
            },
            At::Flag => Origin::Flag,
            At::Span(span) => Origin::File {
                line: self.line_of(floor(self.text, span.start)),
            },
        }
    }

    fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// The line in which the span begins, with a mark below the span.
    pub(super) fn quote(&self, span: &Span) -> Quote {
        // Of a mistake at the end of the file the span may be behind it.
        let start = floor(self.text, span.start);
        let begin = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let end = self.text[start..]
            .find('\n')
            .map_or(self.text.len(), |at| start + at);
        let shown = match self.is_understood {
            true => self.known(begin..end),
            false => guessed(&self.text[begin..end], begin),
        };
        let from = shown.column(start);
        let to = shown.column(span.end.clamp(start, end));
        Quote {
            line: self.line_of(start),
            column: self.text[begin..start].chars().count() + 1,
            text: shown.text.trim_end().to_owned(),
            mark: (from, (to.saturating_sub(from)).max(1)),
        }
    }

    fn known(&self, line: Span) -> Shown {
        let mut shown = Shown::default();
        let mut at = line.start;
        for (span, look) in &self.values {
            if span.end <= at || span.start >= line.end {
                continue;
            }
            let start = span.start.max(line.start);
            if shown.copy_until_comment(self.text, at..start) {
                return shown;
            }
            let end = span.end.min(line.end);
            match *span == (start..end) && *look == self.text[start..end] {
                true => shown.copy(self.text, start..end),
                false => shown.replace(look, start..end),
            }
            at = end;
        }
        shown.copy_until_comment(self.text, at..line.end);
        shown
    }
}

/// What may be shown of a line that is no TOML: a header, or what stands before the value.
fn guessed(line: &str, begin: usize) -> Shown {
    let is_name = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || " \t-_.".contains(c))
    };
    let mut shown = Shown::default();
    let header = line.trim().trim_matches(['[', ']']);
    if line.trim_start().starts_with('[') && is_name(header) {
        shown.copy(line, 0..line.len());
    } else if let Some((key, _)) = line.split_once('=').filter(|(key, _)| is_name(key)) {
        shown.copy(line, 0..key.len() + 1);
        shown.replace(" ***", key.len() + 1..line.len());
    } else {
        shown.replace(HIDDEN, 0..line.len());
    }
    for (at, _) in &mut shown.columns {
        *at += begin;
    }
    shown
}

/// The last place up to `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default()
}

/// What stands in place of a value.
pub(super) const HIDDEN: &str = "***";

/// A line under construction.
#[derive(Debug, Default)]
struct Shown {
    text: String,
    width: usize,
    /// Byte of the file, and the column in which it is shown.
    columns: Vec<(usize, usize)>,
}

impl Shown {
    fn copy(&mut self, text: &str, span: Span) {
        for (at, c) in text[span.clone()].char_indices() {
            self.columns.push((span.start + at, self.width));
            // One column for each, so that the mark stands below.
            self.text.push(if c.is_control() { ' ' } else { c });
            self.width += 1;
        }
        self.columns.push((span.end, self.width));
    }

    /// Copies what stands between values, unless a URL is in it, as the name of something; true if
    /// a comment begins there, which ends the line.
    fn copy_until_comment(&mut self, text: &str, span: Span) -> bool {
        let comment = text[span.clone()].find('#');
        let span = span.start..comment.map_or(span.end, |at| span.start + at);
        match text[span.clone()].contains(['@', ':']) {
            true => self.replace(HIDDEN, span),
            false => self.copy(text, span),
        }
        comment.is_some()
    }

    fn replace(&mut self, shown: &str, span: Span) {
        self.columns.push((span.start, self.width));
        self.text.push_str(shown);
        self.width += shown.chars().count();
        self.columns.push((span.end, self.width));
    }

    /// The column of a byte; within a value that is replaced, that of its beginning.
    fn column(&self, at: usize) -> usize {
        let before = self.columns.iter().filter(|(byte, _)| *byte <= at);
        before.map(|(_, column)| *column).max().unwrap_or_default()
    }
}

/// A line of the file with a mark.
#[derive(Clone, Debug)]
pub(super) struct Quote {
    pub(super) line: usize,
    pub(super) column: usize,
    text: String,
    /// First column, counted from 0, and length.
    mark: (usize, usize),
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let (indent, length) = self.mark;
        let (gutter, space) = (" ".repeat(number.len()), " ".repeat(indent));
        writeln!(f, "  {number} | {}", self.text)?;
        write!(f, "  {gutter} | {space}{}", "^".repeat(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_until_they_are_shown() {
        let text = "a = 1\nurl = \"secret\" # old: secret\nttl = \"5s\"\n";
        let (url, ttl) = (12..20, text.find("\"5s\"").unwrap());
        let mut lines = Lines::new(text);
        lines.understand(vec![4..5, url.clone(), ttl..ttl + 4]);
        assert_eq!(
            lines.quote(&url).to_string(),
            "  2 | url = ***\n    |       ^^^"
        );
        lines.show_as(&url, "\"***@cache\"".to_owned());
        assert_eq!(
            lines.quote(&(6..9)).to_string(),
            "  2 | url = \"***@cache\"\n    | ^^^"
        );
        lines.show(&(ttl..ttl + 4));
        let quote = lines.quote(&(ttl..ttl + 4));
        assert_eq!((quote.line, quote.column), (3, 7));
        assert_eq!(quote.to_string(), "  3 | ttl = \"5s\"\n    |       ^^^^");
    }

    #[test]
    fn of_a_line_that_is_no_toml_the_names_are_shown() {
        let table = [
            ("[backend.main", "[backend.main"),
            ("url = \"secret", "url = ***"),
            ("url redis://:secret@cache?a=b", "***"),
            ("secret", "***"),
        ];
        for (line, shown) in table {
            assert_eq!(Lines::new(line).quote(&(0..1)).text, shown);
        }
    }

    #[test]
    fn a_mark_stands_below_what_it_marks() {
        let text = "\tkey\u{e9} = \"x\"";
        let at = text.find('"').unwrap();
        let mut lines = Lines::new(text);
        let value = at..text.len();
        lines.understand(vec![value.clone()]);
        lines.show(&value);
        assert_eq!(
            lines.quote(&value).to_string(),
            "  1 |  key\u{e9} = \"x\"\n    |         ^^^"
        );
        // Behind the end of the file.
        assert_eq!(lines.quote(&(99..99)).mark.1, 1);
    }
}
