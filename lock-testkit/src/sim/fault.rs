use std::fmt;

/// What goes wrong in a simulated history.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Fault {
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

impl Fault {
    /// Every kind of fault that a set of histories has to contain.
    pub const ALL: [Self; 11] = [
        Self::DeadProcess,
        Self::DoubledRequest,
        Self::DriftingClock,
        Self::LateReply,
        Self::LateRequest,
        Self::LostPush,
        Self::LostReply,
        Self::LostRequest,
        Self::PausedProcess,
        Self::RestartedStore,
        Self::Unreachable,
    ];

    /// A few words for a report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeadProcess => "dead processes",
            Self::DoubledRequest => "doubled requests",
            Self::DriftingClock => "drifting clocks",
            Self::LateReply => "late replies",
            Self::LateRequest => "late requests",
            Self::LostPush => "lost pushes",
            Self::LostReply => "lost replies",
            Self::LostRequest => "lost requests",
            Self::PausedProcess => "paused processes",
            Self::RestartedStore => "restarts",
            Self::Unreachable => "partitions",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
