//! What came out.

use std::collections::BTreeMap;
use std::fmt;

use crate::Args;
use crate::table::Left;

/// What everybody was told, and what the table says in the end.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) told: BTreeMap<u32, Vec<Option<i64>>>,
    pub(crate) paid: Vec<(u32, i64)>,
    pub(crate) left: Left,
}

impl Outcome {
    pub(crate) fn sum(&self) -> i64 {
        self.paid.iter().map(|(_, cents)| cents).sum()
    }

    pub(crate) fn paid_twice(&self) -> usize {
        let mut shares = BTreeMap::new();
        for (grabber, _) in &self.paid {
            *shares.entry(grabber).or_insert(0) += 1;
        }
        shares.values().filter(|shares| **shares > 1).count()
    }

    /// What a fair host would not do.
    pub(crate) fn faults(&self, args: &Args) -> Vec<String> {
        let total = i64::from(args.cents);
        let told_one_thing = |told: &&Vec<Option<i64>>| told.iter().any(|other| *other != told[0]);
        let contradicted = self.told.values().filter(told_one_thing).count();
        let empty = self.paid.iter().filter(|(_, cents)| *cents < 1).count();
        let mut faults = Vec::new();
        let mut claim = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        claim(
            self.sum() == total,
            format!("{} of {total} cents are paid", self.sum()),
        );
        claim(
            self.paid.len() == args.shares as usize,
            format!("{} shares", self.paid.len()),
        );
        claim(
            self.paid_twice() == 0,
            format!("{} have two shares", self.paid_twice()),
        );
        claim(
            contradicted == 0,
            format!("{contradicted} were told two things"),
        );
        claim(empty == 0, format!("{empty} shares are empty"));
        claim(
            self.left
                == Left {
                    cents: 0,
                    shares: 0,
                },
            format!("left: {:?}", self.left),
        );
        faults
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = || self.paid.iter().map(|(_, cents)| *cents);
        write!(
            f,
            "{} shares of {} to {} cents, {} cents in all, {} left, {} grabbers paid twice",
            self.paid.len(),
            cents().min().unwrap_or(0),
            cents().max().unwrap_or(0),
            self.sum(),
            self.left.cents,
            self.paid_twice(),
        )
    }
}
