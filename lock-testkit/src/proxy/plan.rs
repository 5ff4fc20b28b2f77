use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;
use crate::servers::Reply;

/// A command or a request that a client sends.
///
/// One for `ZooKeeper` has these words: its name, such as `CREATE`, `DELETE`, `GETCHILDREN` or `PING`,
/// and `OP<number>` where it has none here; its path, or an empty word; the flags of a `CREATE` in
/// decimal digits, `watch` or an empty word for `EXISTS`, `GETDATA` and `GETCHILDREN`. A `MULTI` has the
/// path and then the name of its first operation. Versions of an operation have one name.
///
/// One for a SQL database is `QUERY` with the text of a message of the simple protocol, `PREPARE` with
/// the text of a statement, or `EXECUTE` with the text of the statement that was prepared. Others have
/// a name alone: for PostgreSQL `STARTUP` and `SYNC`, for MySQL `LOGIN` and `COM<number>`.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// Its words, of which the first is its name.
    pub args: Vec<Vec<u8>>,
    /// The connection, counted from 0 in the order in which the proxy accepted them.
    pub connection: usize,
}

impl Command {
    /// Whether this is its name, in letters of any case.
    pub fn is(&self, name: &str) -> bool {
        self.args
            .first()
            .is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The word at this place as text, empty if there is none. The name is at 0.
    pub fn arg(&self, at: usize) -> Cow<'_, str> {
        let arg = self.args.get(at).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(arg)
    }

    /// Whether one of its words is this.
    pub fn has(&self, word: impl AsRef<[u8]>) -> bool {
        self.args.iter().any(|arg| arg == word.as_ref())
    }
}

/// What happens to a command.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// So many bytes of its reply arrive, then the connection is cut.
    CutReply(usize),
    /// So many of its own bytes arrive, then the connection is cut.
    CutRequest(usize),
    /// It arrives twice; the client gets one of the replies. Only in front of Redis: a connection of
    /// the other protocols takes each request once, and no network repeats one.
    Duplicated {
        /// How long the second follows the first. With [`ReplyOrder::First`] other commands pass in
        /// between, with [`ReplyOrder::Second`] they wait.
        after: Duration,
        /// Which reply the client gets.
        answer: ReplyOrder,
    },
    /// Its reply takes this much longer.
    LateReply(Duration),
    /// It takes this much longer to arrive, even if the client has gone by then.
    LateRequest(Duration),
    /// It arrives, and its reply does not.
    LostReply(Then),
    /// It does not arrive.
    LostRequest(Then),
    /// It arrives, and the client gets this in place of its reply.
    Replaced(&'static str),
}

/// One of two replies.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplyOrder {
    /// The one to the command that arrived first.
    First,
    /// The one to the command that arrived second.
    Second,
}

/// How a connection that lost a message ends. It cannot deliver later messages, because clients match
/// replies by their order.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Then {
    /// It is cut.
    Cut,
    /// It is silent in both directions for this long, and then cut.
    CutAfter(Duration),
    /// It is silent in both directions until the client closes it.
    Silent,
}

/// A fate that waits for its command.
#[derive(Clone)]
pub struct Planned(Arc<CommandPlan>);

struct CommandPlan {
    matches: Matcher,
    fate: Fate,
    each: bool,
    struck: AtomicUsize,
    taken: AtomicBool,
}

impl Planned {
    /// A fate for the next command that matches.
    #[must_use]
    pub fn once(matches: impl Fn(&Command) -> bool + Send + Sync + 'static, fate: Fate) -> Self {
        Self::new(Box::new(matches), fate, false)
    }

    /// A fate for every command that matches.
    #[must_use]
    pub fn each(matches: impl Fn(&Command) -> bool + Send + Sync + 'static, fate: Fate) -> Self {
        Self::new(Box::new(matches), fate, true)
    }

    fn new(matches: Matcher, fate: Fate, each: bool) -> Self {
        Self(Arc::new(CommandPlan {
            matches,
            fate,
            each,
            struck: AtomicUsize::new(0),
            taken: AtomicBool::new(false),
        }))
    }

    /// How many commands it has met.
    pub fn struck(&self) -> usize {
        self.0.struck.load(Ordering::SeqCst)
    }

    /// Waits until it has met a command.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn met(&self, within: Duration) {
        let deadline = Instant::now() + within;
        while self.struck() == 0 {
            assert!(Instant::now() < deadline, "no command met {self:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn fate(&self) -> Fate {
        self.0.fate
    }

    fn take(&self, command: &Command) -> Option<Fate> {
        let plan = &self.0;
        if self.is_over() || !(plan.matches)(command) {
            return None;
        }
        // A plan of several proxies is taken by the first.
        if !plan.each && plan.taken.swap(true, Ordering::SeqCst) {
            return None;
        }
        plan.struck.fetch_add(1, Ordering::SeqCst);
        Some(plan.fate)
    }

    fn is_over(&self) -> bool {
        !self.0.each && self.0.taken.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned")
            .field("fate", &self.0.fate)
            .field("struck", &self.struck())
            .finish_non_exhaustive()
    }
}

/// A push message of a server, as its items. One of Redis begins with its kind, such as `message`. One
/// of `ZooKeeper` is `event`, the number of its type (1 created, 2 deleted, 3 data changed, 4 children
/// changed), and the path of the node.
pub type Push = Vec<Reply>;

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

/// The commands that matched since [`Proxy::watch`](super::Proxy::watch).
#[derive(Clone)]
pub struct Watch<T = Command>(Arc<Watched<T>>);

/// The push messages that matched since [`Proxy::watch_pushes`](super::Proxy::watch_pushes).
pub type PushWatch = Watch<Push>;

struct Watched<T> {
    matches: Matcher<T>,
    seen: Mutex<Vec<T>>,
}

impl<T: Clone> Watch<T> {
    pub(super) fn new(matches: Matcher<T>) -> Self {
        let seen = Mutex::default();
        Self(Arc::new(Watched { matches, seen }))
    }

    fn meet(&self, what: &T) {
        if (self.0.matches)(what) {
            lock(&self.0.seen).push(what.clone());
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        lock(&self.0.seen).len()
    }

    /// All, in the order in which they came.
    pub fn seen(&self) -> Vec<T> {
        lock(&self.0.seen).clone()
    }
}

impl<T: Clone + fmt::Debug> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.seen()).finish()
    }
}

#[derive(Default)]
pub(super) struct Plans {
    pub(super) planned: Mutex<Vec<Planned>>,
    pub(super) pushes: Mutex<Vec<(Matcher<Push>, PushFate)>>,
    pub(super) watches: Mutex<Vec<Watch>>,
    pub(super) push_watches: Mutex<Vec<PushWatch>>,
}

impl Plans {
    /// Takes the first fate that is planned for a command.
    pub(super) fn meet(&self, command: &Command) -> Option<Fate> {
        lock(&self.watches).iter().for_each(|w| w.meet(command));
        let mut planned = lock(&self.planned);
        planned.retain(|planned| !planned.is_over());
        planned.iter().find_map(|planned| planned.take(command))
    }

    /// The first fate that is planned for a push message.
    pub(super) fn meet_push(&self, push: &Push) -> Option<PushFate> {
        lock(&self.push_watches).iter().for_each(|w| w.meet(push));
        let mut pushes = lock(&self.pushes);
        let at = pushes.iter().position(|(matches, _)| matches(push))?;
        Some(pushes.remove(at).1)
    }
}

pub(super) type Matcher<T = Command> = Box<dyn Fn(&T) -> bool + Send + Sync>;
