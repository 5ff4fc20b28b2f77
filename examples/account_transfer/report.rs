//! What came out, and what was claimed.

use std::fmt;

use lock_core::fencing::StaleToken;

use crate::SHORT_WAIT;
use crate::bank::{ACCOUNTS, BALANCE, TOTAL};

#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) unlocked: Rush,
    pub(crate) locked: Rush,
    pub(crate) naive: Crossing,
    pub(crate) sorted: Crossing,
    pub(crate) late: Late,
}

#[derive(Debug)]
pub(crate) struct Rush {
    pub(crate) made: usize,
    pub(crate) declined: usize,
    pub(crate) sum: i64,
    pub(crate) least: i64,
}

#[derive(Debug)]
pub(crate) struct Crossing {
    pub(crate) done: usize,
    pub(crate) timed_out: usize,
    pub(crate) sum: i64,
}

#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) refused: Option<StaleToken>,
    pub(crate) balances: Vec<i64>,
}

impl Shown {
    pub(crate) fn broken_claims(&self) -> Vec<&'static str> {
        let Self {
            unlocked,
            locked,
            naive,
            sorted,
            late,
        } = self;
        let half = late.balances.iter().sum::<i64>() != TOTAL || late.balances[0] != BALANCE;
        let claims = [
            (unlocked.sum != TOTAL, "nothing was lost without locks"),
            (
                locked.sum == TOTAL && locked.least >= 0,
                "money was lost with locks",
            ),
            (naive.timed_out >= 4, "no transfers waited for each other"),
            (
                sorted.timed_out == 0,
                "sorted transfers waited for each other",
            ),
            (
                naive.sum == TOTAL && sorted.sum == TOTAL,
                "money was lost where transfers crossed",
            ),
            (late.refused.is_some(), "the late transfer was let in"),
            (!half, "half of the late transfer was let in"),
        ];
        let broken = claims.iter().filter(|(holds, _)| !holds);
        broken.map(|(_, otherwise)| *otherwise).collect()
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{ACCOUNTS} accounts with {TOTAL} cents in all")?;
        for (name, rush) in [
            ("without locks", &self.unlocked),
            ("with locks", &self.locked),
        ] {
            let Rush {
                made,
                declined,
                sum,
                least,
            } = rush;
            writeln!(
                f,
                "{name:14} {made} transfers, {declined} declined: {sum} cents, the least {least}"
            )?;
        }
        writeln!(
            f,
            "8 transfers that cross in pairs, with a wait of {SHORT_WAIT:?}"
        )?;
        for (name, crossing) in [("from first", &self.naive), ("sorted", &self.sorted)] {
            let Crossing {
                done,
                timed_out,
                sum,
            } = crossing;
            writeln!(
                f,
                "{name:14} {done} done, {timed_out} timed out: {sum} cents"
            )?;
        }
        let [from, to] = [self.late.balances[0], self.late.balances[1]];
        match &self.late.refused {
            Some(stale) => write!(f, "a late transfer was refused: {stale};")?,
            None => write!(f, "a late transfer was let in;")?,
        }
        writeln!(f, " its accounts have {from} and {to}")
    }
}
