use std::fmt;

use crate::invariant::Invariant;
use crate::judge::Findings;
use crate::scene::Script;
use crate::timeline::Entry;

/// What one scheme did when it was provoked.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) script: Script,
    pub(crate) entries: Vec<Entry>,
    pub(crate) findings: Findings,
}

impl Report {
    /// Whether exactly that broke which is known to.
    pub(crate) fn is_as_predicted(&self) -> bool {
        let predicted = self.script.breaks;
        let broken = &self.findings.broken;
        broken.len() == predicted.len() && predicted.iter().all(|p| broken.contains_key(p))
    }

    fn verdict(&self, invariant: Invariant) -> &'static str {
        let fenced = invariant == Invariant::MutualExclusion && self.findings.fenced.is_some();
        match self.findings.broken.contains_key(&invariant) {
            true => "BROKEN",
            false if fenced => "fenced",
            false => ".",
        }
    }
}

/// The story.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.script;
        writeln!(f, "{:<3} {}: {}.", script.rung, script.scheme, script.how)?;
        writeln!(f, "    Provoked by: {}.", script.provocation)?;
        for entry in &self.entries {
            writeln!(f, "{entry}")?;
        }
        for invariant in Invariant::ALL {
            if let Some(evidence) = self.findings.broken.get(&invariant) {
                writeln!(f, "    BROKEN {invariant}: {evidence}")?;
            }
        }
        if let Some(evidence) = &self.findings.fenced {
            writeln!(f, "    fenced: {evidence}")?;
        }
        if self.findings.broken.is_empty() {
            writeln!(f, "    nothing broke")?;
        }
        Ok(())
    }
}

/// What all of them come to.
pub(crate) struct Table<'a>(pub(crate) &'a [Report]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "", "", "", ["mutual", "owner-", "live-", "loss", ""])?;
        let second = ["exclusion", "ship", "ness", "signal", "fencing"];
        row(f, "", "scheme", "provoked by", second)?;
        writeln!(f, "{}", "-".repeat(WIDTH))?;
        for report in self.0 {
            let script = report.script;
            let verdicts = Invariant::ALL.map(|invariant| report.verdict(invariant));
            row(f, script.rung, script.scheme, script.provocation, verdicts)?;
            if !report.is_as_predicted() {
                let predicted: Vec<_> = report
                    .script
                    .breaks
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                writeln!(f, "    UNEXPECTED, predicted was: {}", predicted.join(", "))?;
            }
        }
        writeln!(f, "{}", "-".repeat(WIDTH))?;
        writeln!(f, "{}", self.sum())
    }
}

impl Table<'_> {
    fn sum(&self) -> String {
        let is_weak = |report: &&Report| !report.script.breaks.is_empty();
        let is_broken = |report: &&&Report| !report.findings.broken.is_empty();
        let (weak, strong): (Vec<_>, Vec<_>) = self.0.iter().partition(is_weak);
        let count = |reports: &[&Report]| reports.iter().filter(is_broken).count();
        format!(
            "classic schemes: {} of {} broke; polylock: {} of {} broke",
            count(&weak),
            weak.len(),
            count(&strong),
            strong.len()
        )
    }
}

fn row(
    f: &mut fmt::Formatter<'_>,
    rung: &str,
    scheme: &str,
    provocation: &str,
    [exclusion, ownership, liveness, signal, fencing]: [&str; 5],
) -> fmt::Result {
    let marks = format!("{exclusion:<9}  {ownership:<6}  {liveness:<6}  {signal:<6}  {fencing}");
    let line = format!("{rung:<3} {scheme:<24}  {provocation:<24}  {marks}");
    writeln!(f, "{}", line.trim_end())
}

const WIDTH: usize = 98;
