use std::borrow::Cow;

use crate::servers::Reply;

/// A command that a client sends.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// Its words, of which the first is its name.
    pub args: Vec<Vec<u8>>,
    /// The connection, counted from 0 in the order in which the proxy accepted them.
    pub connection: usize,
}

impl Command {
    /// None if it is not in the form in which clients send commands.
    pub(super) fn new(request: &Reply, connection: usize) -> Option<Self> {
        let Reply::Array(words) = request else {
            return None;
        };
        let args = words
            .iter()
            .map(|word| match word {
                Reply::Bulk(bytes) => Some(bytes.clone()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { args, connection })
    }

    /// Whether this is its name, in letters of any case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.args
            .first()
            .is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The word at this place as text, empty if there is none. The name is at 0.
    #[must_use]
    pub fn arg(&self, at: usize) -> Cow<'_, str> {
        let arg = self.args.get(at).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(arg)
    }

    /// Whether one of its words is this.
    #[must_use]
    pub fn has(&self, word: impl AsRef<[u8]>) -> bool {
        self.args.iter().any(|arg| arg == word.as_ref())
    }

    /// How many replies it gets: one, but one per channel for those that subscribe.
    pub(super) fn replies(&self) -> usize {
        if self.subscribes() {
            self.args.len().saturating_sub(1).max(1)
        } else {
            1
        }
    }

    /// Whether it is answered like `SUBSCRIBE`: by push messages where the protocol has them.
    pub(super) fn subscribes(&self) -> bool {
        let name = self.arg(0).to_ascii_lowercase();
        CONFIRMATIONS.contains(&name.as_str())
    }
}

/// The commands that subscribe, which are also the kinds of their answers.
pub(super) const CONFIRMATIONS: [&str; 6] = [
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];
