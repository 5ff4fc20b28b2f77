//! What happened, and when.

use std::fmt;
use std::time::Duration;

/// The name of a client.
pub(crate) type Who = &'static str;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) who: Who,
    pub(crate) event: Event,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Dies,
    /// It got the lock, and works from here on.
    Enters(String),
    /// It cannot get in, and nobody is inside.
    IsStuck(String),
    /// Its lock says that it is gone; it works no more.
    IsTold(String),
    /// Its work is done.
    Leaves,
    Notes(String),
    /// It put its own value over that of another.
    Overwrites(Who),
    /// It gave the lock back, and the server removed one or not.
    Releases {
        removed: bool,
    },
    /// It wrote to what the lock protects.
    Writes {
        token: Option<u64>,
        accepted: bool,
    },
}

impl Event {
    /// Whether a client is not inside any more.
    fn is_end(&self) -> bool {
        matches!(self, Self::Dies | Self::IsTold(_) | Self::Leaves)
    }
}

/// The time from which to which a client was inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) who: Who,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// Whether its lock ended it.
    pub(crate) told: bool,
}

impl Stay {
    /// Of entries in their order. Who never leaves stays until the last of them.
    pub(crate) fn all(entries: &[Entry]) -> Vec<Self> {
        let over = entries.last().map_or(Duration::ZERO, |last| last.at);
        let enters = |entry: &Entry| matches!(entry.event, Event::Enters(_));
        let stays = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| enters(entry));
        stays
            .map(|(n, entry)| {
                let mut later = entries[n + 1..].iter().filter(|e| e.who == entry.who);
                let end = later.find(|e| e.event.is_end());
                Self {
                    who: entry.who,
                    from: entry.at,
                    to: end.map_or(over, |end| end.at),
                    told: end.is_some_and(|end| matches!(end.event, Event::IsTold(_))),
                }
            })
            .collect()
    }
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.as_millis(), self.to.as_millis());
        write!(f, "{} from {from} to {to} ms", self.who)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6} ms  {}  ", self.at.as_millis(), self.who)?;
        match &self.event {
            Event::Dies => write!(f, "DIES"),
            Event::Enters(how) => write!(f, "ENTERS    {how}"),
            Event::IsStuck(why) => write!(f, "IS STUCK  {why}"),
            Event::IsTold(why) => write!(f, "IS TOLD   {why}"),
            Event::Leaves => write!(f, "LEAVES    its work is done"),
            Event::Notes(text) => write!(f, "          {text}"),
            Event::Overwrites(whose) => write!(f, "          the lock of {whose} is overwritten"),
            Event::Releases { removed: true } => write!(f, "          release: a lock is removed"),
            Event::Releases { removed: false } => write!(f, "          release: nothing removed"),
            Event::Writes { token, accepted } => {
                let token = token.map_or_else(|| "no token".to_owned(), |t| format!("token {t}"));
                let answer = if *accepted { "accepted" } else { "REFUSED" };
                write!(f, "          write with {token}: {answer}")
            }
        }
    }
}
