//! A report for people.

use std::fmt::Write;
use std::io;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use polylock::Verdict;

use super::report::{Entry, Report, link};
use crate::text::{Escaped, escaped};

/// The report as it is printed; `follows` says that another one stands above.
pub(super) fn page(report: &Report, follows: bool) -> String {
    let mut out = String::new();
    if follows {
        out.push('\n');
    }
    write(report, &mut out);
    match anstream::AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => anstream::adapter::strip_str(&out).to_string(),
        _ => out,
    }
}

fn write(report: &Report, out: &mut String) {
    *out += &format!("{BOLD}{}{BOLD:#}\n", escaped(&report.url));
    for entry in &report.entries {
        line(entry, out);
        let finding = &entry.finding;
        if !finding.is_fault() {
            continue;
        }
        let see = link(finding.check);
        let texts = [
            ("why", &*finding.why),
            ("way out", &*finding.way_out),
            ("see", &see),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            put(
                out,
                format_args!("{:INDENT$}{DIM}{name:<8}{DIM:#}{}\n", "", Escaped(text)),
            );
        }
    }
    if let Some(advice) = &report.advice {
        put(out, format_args!("  {:<9} {}\n", "", advice.text()));
    }
    put(out, format_args!("  {}\n", summary(report)));
}

fn line(entry: &Entry, out: &mut String) {
    let (mark, style) = match entry.finding.verdict {
        _ if entry.is_accepted => ("accepted", DIM),
        Verdict::Good => ("ok", GREEN),
        Verdict::Unknown => ("?", DIM),
        Verdict::Warning => ("warning", BOLD_YELLOW),
        _ => ("error", BOLD_RED),
    };
    let (check, what) = (entry.finding.check, Escaped(&entry.finding.what));
    put(
        out,
        format_args!("  {style}{mark:<9}{style:#} {check}: {what}\n"),
    );
}

/// What it comes to.
fn summary(report: &Report) -> String {
    let count = |verdict, one: &str| match report.count(verdict) {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {one}s")),
    };
    let faults: Vec<_> = [
        count(Verdict::Error, "error"),
        count(Verdict::Warning, "warning"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match report.verdict() {
        Verdict::Good => format!("{GREEN}fit for locks{GREEN:#}"),
        Verdict::Warning => format!("{BOLD_YELLOW}{}{BOLD_YELLOW:#}", faults.join(", ")),
        _ => format!("{BOLD_RED}{}{BOLD_RED:#}", faults.join(", ")),
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("BUG: a string takes all text");
}

/// Where the texts below a line begin.
const INDENT: usize = 12;

const BOLD: Style = Style::new().bold();
const BOLD_RED: Style = AnsiColor::Red.on_default().bold();
const BOLD_YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default();

#[cfg(test)]
mod tests {
    use polylock::Finding;

    use super::*;

    fn plain(report: &Report) -> String {
        let mut out = String::new();
        write(report, &mut out);
        anstream::adapter::strip_str(&out).to_string()
    }

    #[test]
    fn a_fault_has_its_reason_and_its_way_out_below_it() {
        let mut report = Report::new("redis://app:***@cache".to_owned(), None);
        report.add(Finding::good("reach", "cache:6379 takes connections"));
        report.add(Finding::unknown("clock", "not told\u{1b}"));
        report.add(Finding::warning(
            "eviction",
            "it evicts",
            "locks go",
            "do not",
        ));
        report.add(Finding::warning("flush", "a", "b", "c"));
        report.accept(&["flush".to_owned()]);
        assert_eq!(
            plain(&report),
            "redis://app:***@cache\n  \
             ok        reach: cache:6379 takes connections\n  \
             ?         clock: not told\\u{1b}\n  \
             warning   eviction: it evicts\n            \
             why     locks go\n            \
             way out do not\n            \
             see     https://github.com/polylock/polylock/blob/main/docs/doctor.md#eviction\n  \
             accepted  flush: a\n            \
             why     b\n            \
             way out c\n            \
             see     https://github.com/polylock/polylock/blob/main/docs/doctor.md#flush\n  \
             1 warning\n"
        );
    }

    #[test]
    fn nothing_wrong_is_said_as_well() {
        let mut report = Report::new("memory:".to_owned(), None);
        report.add(Finding::good("exclusion", "a"));
        assert!(plain(&report).ends_with("\n  fit for locks\n"));
    }
}
