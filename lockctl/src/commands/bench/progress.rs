use indicatif::{ProgressBar, ProgressStyle};

use crate::output::escaped;

/// How far the run is, on a terminal alone.
#[derive(Debug)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// A bar on standard error, hidden without a terminal or with `--quiet`.
    pub(super) fn new(is_wanted: bool) -> Self {
        let bar = match is_wanted {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {eta}");
        bar.set_style(style.expect("BUG: the template is valid"));
        Self(bar)
    }

    /// `done` measurements of `of` are made; the next one is `what`.
    pub(super) fn show(&self, done: u32, of: u32, what: &str) {
        self.0.set_length(of.into());
        self.0.set_position(done.into());
        self.0.set_message(escaped(what));
        self.0.tick();
    }

    /// Takes the bar off the terminal.
    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}
