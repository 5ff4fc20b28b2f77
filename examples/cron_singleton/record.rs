//! The record of the ticks, a file with a line for each.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use polylock::FencingToken;

use crate::Result;

/// One run of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    pub(crate) period: u64,
    pub(crate) token: u64,
    pub(crate) pid: u32,
}

/// Writes a tick at the end of the record, with one system call.
pub(crate) fn append(record: &Path, period: u64, token: FencingToken) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(record)?;
    file.write_all(format!("{period} {token} {}\n", std::process::id()).as_bytes())
}

pub(crate) fn read(record: &Path) -> Result<Vec<Tick>> {
    let text = match std::fs::read_to_string(record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    text.lines().map(Tick::parse).collect()
}

impl Tick {
    fn parse(line: &str) -> Result<Self> {
        let [period, token, pid] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("{line:?} is no tick").into());
        };
        Ok(Self {
            period: period.parse()?,
            token: token.parse()?,
            pid: pid.parse()?,
        })
    }
}

/// One tick per period, in their order, and no leader after the next one.
pub(crate) fn check(ticks: &[Tick]) -> Result<()> {
    for pair in ticks.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        if after.period != before.period + 1 || after.token < before.token {
            return Err(format!("{after:?} follows {before:?}").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_too_many_or_too_few_is_found_out() {
        let record = |periods: [(u64, u64); 3]| {
            let tick = |(period, token)| Tick {
                period,
                token,
                pid: 1,
            };
            check(&periods.map(tick))
        };
        assert!(record([(7, 1), (8, 1), (9, 2)]).is_ok());
        assert!(record([(7, 1), (8, 1), (8, 2)]).is_err());
        assert!(record([(7, 1), (9, 1), (10, 2)]).is_err());
        assert!(record([(7, 1), (8, 2), (9, 1)]).is_err());
    }
}
