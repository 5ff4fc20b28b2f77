use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::servers::Reply;

/// A push message of a server.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// What it says. One of Redis begins with its kind, such as `message`. One of `ZooKeeper` is
    /// `event`, the number of its type (1 created, 2 deleted, 3 data changed, 4 children changed),
    /// the path of the node, and the number of the state of the session. One of PostgreSQL is
    /// `notification`, its channel, its payload, and the number of the process that sent it.
    pub items: Vec<Reply>,
    /// The connection, counted from 0 in the order in which the proxy accepted them.
    pub connection: usize,
}

/// What happens to a push message.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PushFate {
    /// It arrives twice.
    Doubled,
    /// It takes this much longer, and so do those behind it.
    Late(Duration),
    /// It does not arrive.
    Lost,
}

/// The push messages that matched since [`Proxy::watch_pushes`](super::Proxy::watch_pushes).
#[derive(Clone)]
pub struct PushWatch(Arc<Watched>);

struct Watched {
    matches: PushMatcher,
    seen: Mutex<Vec<Push>>,
}

impl PushWatch {
    pub(super) fn new(matches: PushMatcher) -> Self {
        Self(Arc::new(Watched {
            matches,
            seen: Mutex::default(),
        }))
    }

    pub(super) fn meet(&self, push: &Push) {
        if (self.0.matches)(&push.items) {
            let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(push.clone());
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen().len()
    }

    /// The messages in the order in which they came.
    #[must_use]
    pub fn seen(&self) -> Vec<Push> {
        let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

impl fmt::Debug for PushWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PushWatch").field(&self.seen()).finish()
    }
}

pub(super) type PushMatcher = Box<dyn Fn(&[Reply]) -> bool + Send + Sync>;
