/// What goes wrong in a simulated history.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum SimFault {
    /// A process is killed, and another one takes its place.
    DeadProcess,
    /// A request arrives twice, the second time later.
    DoubledRequest,
    /// The clock of a process or of the store runs too fast or too slow.
    DriftingClock,
    /// A reply or a pushed grant takes up to three seconds.
    LateReply,
    /// A request takes up to three seconds.
    LateRequest,
    /// A pushed grant is lost.
    LostPush,
    /// A request is done, and its reply is lost or replaced by a broken connection.
    LostReply,
    /// A request is lost.
    LostRequest,
    /// A process is stopped for a while and goes on.
    PausedProcess,
    /// The store restarts and has its data.
    RestartedStore,
    /// Requests of a process do not arrive, or replies, or both.
    Unreachable,
}
