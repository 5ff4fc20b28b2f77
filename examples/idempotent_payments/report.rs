//! What has been shown.

use std::collections::BTreeMap;
use std::fmt;

use crate::clients::Answers;
use crate::service::Mode;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) payments: usize,
    pub(crate) runs: Vec<Run>,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) mode: Mode,
    pub(crate) answers: Answers,
    /// How often each card was charged.
    pub(crate) charges: BTreeMap<u32, u32>,
    /// The statuses of a request without a key, and of one with the key of another.
    pub(crate) refused: Option<[u16; 2]>,
}

impl Run {
    fn charged(&self) -> u32 {
        self.charges.values().sum()
    }

    /// The most that one card was charged.
    fn worst(&self) -> u32 {
        self.charges.values().copied().max().unwrap_or_default()
    }

    /// Cards whose holder has receipts of two charges.
    fn contradicted(&self) -> usize {
        let receipts = self.answers.charges.values();
        receipts.filter(|charges| charges.len() > 1).count()
    }
}

impl Report {
    /// What should be so and is not.
    pub(crate) fn broken_claims(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for run in &self.runs {
            let (mode, charged) = (run.mode, run.charged());
            let is_as_claimed = match mode {
                Mode::None | Mode::Store => run.worst() > 1,
                Mode::Layer => charged as usize == self.payments && run.worst() == 1,
            };
            if !is_as_claimed {
                let worst = run.worst();
                broken.push(format!(
                    "{mode:?} made {charged} charges, {worst} of one card"
                ));
            }
            if run.answers.charges.len() != self.payments {
                broken.push(format!("{mode:?} left somebody without a receipt"));
            }
            if mode == Mode::Layer && run.contradicted() > 0 {
                broken.push("two receipts of one payment differ".to_owned());
            }
            if mode == Mode::Layer && run.refused != Some([400, 422]) {
                broken.push(format!("a wrong key was answered with {:?}", run.refused));
            }
        }
        broken
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} payments", self.payments)?;
        writeln!(
            f,
            "{:8}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>14}",
            "mode",
            "requests",
            "given up",
            "receipts",
            "409",
            "replayed",
            "charges",
            "most per card"
        )?;
        for run in &self.runs {
            let answers = &run.answers;
            writeln!(
                f,
                "{:8}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>14}",
                format!("{:?}", run.mode).to_lowercase(),
                answers.requests,
                answers.given_up,
                answers.receipts,
                answers.busy,
                answers.replayed,
                run.charged(),
                run.worst(),
            )?;
        }
        for [keyless, reused] in self.runs.iter().filter_map(|run| run.refused) {
            writeln!(
                f,
                "without a key: {keyless}; another amount with the same key: {reused}"
            )?;
        }
        Ok(())
    }
}
