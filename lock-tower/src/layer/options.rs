use std::time::Duration;

/// When the lock of a request is released.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HoldUntil {
    /// When the body of the response has been sent, was dropped, or `max` has passed since its
    /// head: then the rest of the body is an error, and a slow reader is cut off. A body that is
    /// not polled lives on until its connection ends, without the lock.
    BodyEnd {
        /// Longest time for the body.
        max: Duration,
    },
    /// When the handler is done, and before the client sees the head of its response: a client that
    /// sends its next request after that does not find its own lock held.
    #[default]
    Handler,
    /// When [`HeldLock::release`](crate::HeldLock::release) is called, or the last clone of the
    /// [`HeldLock`](crate::HeldLock) is dropped.
    Manual,
}

/// What becomes of a handler whose client is gone.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum OnDisconnect {
    /// It is dropped, as without this layer, and its lock released. A statement that it has sent
    /// may still run in the database when the next request enters; the fencing token detects it.
    #[default]
    Cancel,
    /// It goes on to its end in a task of its own, and keeps the lock until then.
    RunToCompletion,
}

/// What becomes of a handler whose lock is lost.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum OnLost {
    /// It is dropped, and the client learns that the effect is unknown.
    #[default]
    Cancel,
    /// It goes on; it asks [`HeldLock`](crate::HeldLock) itself.
    Continue,
}

/// What becomes of requests whose method is safe: `GET`, `HEAD`, `OPTIONS` and `TRACE`.
///
/// `Pass` is for services that look at the method themselves, as the routes of axum do. A service
/// that does not, such as one of tonic, runs the same handler whatever the method says: a client
/// would get around the lock with another word. It takes `Exclusive`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SafeMethods {
    /// They take the lock like the others.
    Exclusive,
    /// They pass without a lock.
    #[default]
    Pass,
    /// They share the lock among themselves, and exclude the others. The backend must have shared
    /// locks.
    Shared,
}
