use std::fmt;
use std::time::{Duration, SystemTime};

use crate::label::Label;
use crate::token::FencingToken;

/// One holder of a lock, as the server knows it.
///
/// The example of [`LockInfo`](crate::admin::LockInfo) prints the holders of a lock.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HolderInfo {
    /// The holder's identity.
    pub label: Label,
    /// Its fencing token. After a hand-over inside the holder's process, which the server need not
    /// know of, the current token is larger.
    pub token: Option<FencingToken>,
    /// When it acquired the lock, by the clock of the machine that recorded it.
    pub since: Option<SystemTime>,
    /// How long the lease lasts unless it is renewed; `None` if it has no time limit.
    pub time_left: Option<Duration>,
}

impl HolderInfo {
    /// A holder of whom only the label is known. For implementors.
    #[must_use]
    pub fn new(label: Label) -> Self {
        Self {
            label,
            token: None,
            since: None,
            time_left: None,
        }
    }
}

/// Who holds the lock, where and for how long, such as `etl-7c9 (pid 4121) for 3m 12s`.
impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.label.host() {
            "" => f.write_str("an unknown host")?,
            // Another process wrote it: it must not steer a terminal.
            host => write!(f, "{}", host.escape_debug())?,
        }
        if self.label.pid() != 0 {
            write!(f, " (pid {})", self.label.pid())?;
        }
        if let Some(age) = self.since.and_then(|since| since.elapsed().ok()) {
            let age = match age.as_secs() {
                0 => Duration::from_millis(u64::from(age.subsec_millis())),
                // To the nearest: some backends record a holder a moment after the grant.
                seconds => Duration::from_secs(seconds + u64::from(age.subsec_millis() >= 500)),
            };
            write!(f, " for {}", humantime::format_duration(age))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_described_in_one_line() {
        let ago = |age| SystemTime::now().checked_sub(Duration::from_millis(age));
        let table = [
            (
                "host=etl-7c9&pid=4121",
                ago(191_900),
                "etl-7c9 (pid 4121) for 3m 12s",
            ),
            (
                "host=etl-7c9&pid=4121&user=deploy",
                None,
                "etl-7c9 (pid 4121)",
            ),
            ("host=a%1B[31mb", None, "a\\u{1b}[31mb"),
            ("pid=7", None, "an unknown host (pid 7)"),
        ];
        for (label, since, expected) in table {
            let mut holder = HolderInfo::new(Label::decode(label));
            holder.since = since;
            assert_eq!(holder.to_string(), expected);
        }
    }
}
