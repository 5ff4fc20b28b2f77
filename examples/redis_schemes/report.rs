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
        let Script {
            rung,
            scheme,
            provocation,
            ..
        } = self.script;
        writeln!(f, "{rung:<3} {scheme}: {provocation}")?;
        for entry in &self.entries {
            writeln!(f, "{entry}")?;
        }
        for (invariant, evidence) in &self.findings.broken {
            writeln!(f, "    broken: {invariant}: {evidence}")?;
        }
        if let Some(evidence) = &self.findings.fenced {
            writeln!(f, "    harmless: {evidence}")?;
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
            let Script {
                rung,
                scheme,
                provocation,
                ..
            } = report.script;
            let verdicts = Invariant::ALL.map(|invariant| report.verdict(invariant));
            row(f, rung, scheme, provocation, verdicts)?;
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
        writeln!(f, "{}", "-".repeat(WIDTH))
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
