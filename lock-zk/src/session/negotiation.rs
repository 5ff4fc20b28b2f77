//! The session timeouts that servers grant at each connection.
//!
//! zookeeper-client 0.11 negotiates the timeout again whenever it connects, and `session_timeout()`
//! of its handle stays the first one. Only its log has the response, so the task of the session
//! listens to that log, and forwards it to the subscriber that the program had when the session was
//! opened. A session whose log is compiled out (`release_max_level_info` of `tracing`) is replaced
//! whenever it reconnects.

use std::fmt::{self, Write};
use std::pin::pin;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polylock_core::engine::{Engine, Moment};
use spawns_core::{Spawn, Task};
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher};
use tracing_core::span::Current;

/// What the servers of one session have granted.
#[derive(Debug)]
pub(crate) struct Negotiated {
    engine: Engine,
    /// In milliseconds; [`NOTHING`] before the first response.
    smallest: AtomicU64,
    /// When the last request for the session left, in nanoseconds.
    requested: AtomicU64,
    /// When the last answered request was sent.
    asked: AtomicU64,
    /// The number of responses.
    responses: AtomicU64,
    #[cfg(test)]
    ignores_log: AtomicBool,
}

const NOTHING: u64 = u64::MAX;

impl Negotiated {
    fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            smallest: AtomicU64::new(NOTHING),
            requested: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            #[cfg(test)]
            ignores_log: AtomicBool::new(false),
        }
    }

    /// Ignores the log from here on, as where the log of the client is compiled out.
    #[cfg(test)]
    pub(crate) fn ignore_log(&self) {
        self.ignores_log.store(true, Ordering::Release);
    }

    /// The smallest timeout of all connections; `None` if the log is unavailable.
    ///
    /// A later leader begins with the first one, and the present one has the last one.
    pub(crate) fn smallest(&self) -> Option<Duration> {
        let smallest = self.smallest.load(Ordering::Acquire);
        (smallest != NOTHING).then(|| Duration::from_millis(smallest))
    }

    /// A moment before the request was sent that the server of the present connection has answered.
    pub(crate) fn asked(&self) -> Moment {
        Moment::from_nanos(self.asked.load(Ordering::Acquire))
    }

    /// How many connections have reported their timeout.
    pub(crate) fn responses(&self) -> u64 {
        self.responses.load(Ordering::Acquire)
    }

    fn read_log(&self, message: &str) {
        #[cfg(test)]
        if self.ignores_log.load(Ordering::Acquire) {
            return;
        }
        if message.starts_with(REQUEST) {
            let now = self.engine.now().as_nanos();
            self.requested.store(now, Ordering::Release);
        } else if let Some(timeout) = granted(message) {
            let requested = self.requested.load(Ordering::Acquire);
            self.asked.store(requested, Ordering::Release);
            self.smallest.fetch_min(timeout, Ordering::AcqRel);
            self.responses.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Opens a session and listens to what it negotiates, for as long as it lasts.
pub(crate) async fn listen<T>(
    engine: &Engine,
    opening: impl Future<Output = T>,
) -> (T, Arc<Negotiated>) {
    let negotiated = Arc::new(Negotiated::new(engine));
    let dispatch = Dispatch::new(NegotiationSubscriber {
        negotiated: Arc::clone(&negotiated),
        program: dispatcher::get_default(Clone::clone),
    });
    let spawner = Spawner {
        engine: engine.clone(),
        dispatch: dispatch.clone(),
    };
    let mut opening = pin!(opening.with_subscriber(dispatch));
    let opened = std::future::poll_fn(|context| {
        // The client spawns the task of its session when it is open.
        let _scope = spawns_core::enter(&spawner);
        opening.as_mut().poll(context)
    });
    (opened.await, negotiated)
}

/// Spawns the task of a session on the engine, for callers to poll.
struct Spawner {
    engine: Engine,
    dispatch: Dispatch,
}

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        let serving = Box::into_pin(task.future);
        // It ends with the session.
        self.engine
            .spawn_inline(serving.with_subscriber(self.dispatch.clone()));
    }
}

/// Forwards everything to the program's subscriber, except downcasts: they are unsafe to forward, and the
/// client, the only code that runs with the listener, makes none.
struct NegotiationSubscriber {
    negotiated: Arc<Negotiated>,
    program: Dispatch,
}

/// Whether this may be a request for a session, or its response.
fn is_candidate(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
        && *metadata.level() == Level::DEBUG
        && metadata.target() == "zookeeper_client::session"
}

impl Subscriber for NegotiationSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        let interest = self.program.register_callsite(metadata);
        match is_candidate(metadata) {
            true => Interest::sometimes(),
            false => interest,
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_candidate(metadata) || self.program.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        // The subscriber of the program gives its own.
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        if is_candidate(event.metadata()) {
            event.record(&mut Reading(&self.negotiated));
            if !self.program.enabled(event.metadata()) {
                return;
            }
        }
        self.program.event(event);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.program.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.program.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.program.record_follows_from(span, follows);
    }

    fn enter(&self, span: &Id) {
        self.program.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.program.exit(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.program.clone_span(span)
    }

    fn try_close(&self, span: Id) -> bool {
        self.program.try_close(span)
    }

    fn current_span(&self) -> Current {
        self.program.current_span()
    }
}

/// Reads the message of an event.
struct Reading<'a>(&'a Negotiated);

impl Visit for Reading<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != "message" {
            return;
        }
        let mut message = Message(String::new());
        // It stops at the first piece of a message that is another one.
        if write!(message, "{value:?}").is_ok() {
            self.0.read_log(&message.0);
        }
    }
}

/// The text of a request for a session or of the response, as far as it is one.
struct Message(String);

impl Write for Message {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0.push_str(piece);
        let begins = |with: &&str| self.0.starts_with(with) || with.starts_with(&self.0);
        let is_one = [REQUEST, RESPONSE].iter().any(begins);
        is_one.then_some(()).ok_or(fmt::Error)
    }
}

const REQUEST: &str = "sending connect request: ";
const RESPONSE: &str = "received connect response: ";

/// The timeout of a response, in milliseconds; 0 says that the session has expired.
fn granted(message: &str) -> Option<u64> {
    let (_, rest) = message
        .strip_prefix(RESPONSE)?
        .split_once("session_timeout: ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|timeout| *timeout > 0)
}

#[cfg(test)]
mod tests {
    use tracing::{Span, debug_span};

    use super::*;

    /// The client records the session in the span that it is in.
    #[test]
    fn the_span_of_the_program_is_the_current_one() {
        let listener = NegotiationSubscriber {
            negotiated: Arc::new(Negotiated::new(&Engine::of_this_process("test"))),
            program: Dispatch::new(tracing_subscriber::registry()),
        };
        dispatcher::with_default(&Dispatch::new(listener), || {
            assert_eq!(Span::current().id(), None, "nobody is in a span");
            let span = debug_span!("connect").entered();
            let id = span.id().expect("it is enabled");
            assert_eq!(Span::current().id(), Some(id), "it is not passed on");
        });
    }

    #[test]
    fn a_response_tells_its_timeout_and_other_messages_nothing() {
        let response = "received connect response: ConnectResponse { protocol_version: 0, \
                        session_timeout: 4000, session_id: 1, readonly: false }";
        let expired = response.replace("4000", "0");
        let cases = [
            (response, Some(4_000)),
            (&expired, None),
            ("received connect response: Other", None),
        ];
        for (message, timeout) in cases {
            assert_eq!(granted(message), timeout, "{message}");
            assert!(write!(Message(String::new()), "{message}").is_ok());
        }
        let other = "operation get reply: x";
        assert!(write!(Message(String::new()), "{other}").is_err());
    }
}
