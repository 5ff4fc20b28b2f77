//! What came out, and what was claimed.

use std::fmt;

use crate::buyers::Answers;
use crate::late::{LateWrite, PIECES};
use crate::mode::Mode;
use crate::shop::Books;

#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) pieces: i64,
    pub(crate) runs: Vec<Run>,
    /// With the lock alone, and with the fence.
    pub(crate) late: [LateWrite; 2],
}

/// A sale in one mode.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) mode: Mode,
    pub(crate) answers: Answers,
    pub(crate) books: Books,
    pub(crate) retries: u32,
}

impl Run {
    pub(crate) fn buyers_with_two_orders(&self) -> usize {
        let orders = self.answers.orders.values();
        orders.filter(|orders| orders.len() > 1).count()
    }

    fn broken_claims(&self, pieces: i64) -> Vec<String> {
        let Books { left, orders } = self.books;
        let mut broken = Vec::new();
        let mut claim = |holds: bool, what: String| {
            if !holds {
                broken.push(format!("{}: {what}", self.mode.name()));
            }
        };
        if self.mode.is_exact() {
            let turned_away = self.answers.turned_away;
            claim(orders == pieces, format!("sold {orders} of {pieces}"));
            claim(
                left + orders == pieces,
                format!("{left} are left of {pieces}, {orders} sold"),
            );
            claim(turned_away == 0, format!("{turned_away} were turned away"));
        } else {
            claim(
                orders > pieces,
                format!("sold no more than {pieces}, nothing is shown"),
            );
        }
        let twice = self.buyers_with_two_orders();
        claim(twice == 0, format!("{twice} buyers have two orders"));
        let confirmed = self.answers.new as i64;
        claim(
            confirmed == orders,
            format!("{confirmed} orders confirmed, {orders} in the books"),
        );
        broken
    }
}

impl Report {
    /// The claims of the example that do not hold.
    pub(crate) fn broken_claims(&self) -> Vec<String> {
        let runs = self.runs.iter();
        let mut broken: Vec<_> = runs
            .flat_map(|run| run.broken_claims(self.pieces))
            .collect();
        for late in &self.late {
            let Books { left, orders } = late.books;
            let is_fenced = late.mode == Mode::LockFencing;
            let let_in = late.refused.is_none() && left + orders > PIECES;
            let kept_out = late.refused.is_some() && left + orders == PIECES;
            if !(if is_fenced { kept_out } else { let_in }) {
                broken.push(format!(
                    "the late write in mode {}: {late:?}",
                    late.mode.name()
                ));
            }
        }
        broken
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.runs.first().map_or(0, |run| run.answers.requests);
        writeln!(
            f,
            "{requests} requests for {} pieces, in each mode\n",
            self.pieces
        )?;
        writeln!(
            f,
            "{:12} {:>5} {:>5} {:>6} {:>12} {:>11} {:>8} {:>11}",
            "mode", "sold", "left", "books", "same answer", "turned away", "retries", "requests/s"
        )?;
        for run in &self.runs {
            let Books { left, orders } = run.books;
            let books = if left + orders == self.pieces {
                "match"
            } else {
                "wrong"
            };
            writeln!(
                f,
                "{:12} {orders:>5} {left:>5} {books:>6} {:>12} {:>11} {:>8} {:>11.0}",
                run.mode.name(),
                run.answers.again,
                run.answers.turned_away,
                run.retries,
                run.answers.per_second(),
            )?;
        }
        writeln!(
            f,
            "\nA write that arrives after its lock has gone to the next order:"
        )?;
        for late in &self.late {
            let Books { left, orders } = late.books;
            write!(
                f,
                "{:12} {orders} sold of {PIECES}, {left} left: ",
                late.mode.name()
            )?;
            match &late.refused {
                Some(stale) => writeln!(f, "refused, {stale}")?,
                None => writeln!(f, "let in, the order before it is not counted")?,
            }
        }
        Ok(())
    }
}
