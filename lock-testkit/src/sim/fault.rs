//! The kinds of faults of a history.

use crate::variants;

variants! {
    /// What goes wrong in a simulated history.
    SimFault,
    /// A few words for a report.
    as_str: &'static str {
        /// A process is killed, and another one takes its place.
        DeadProcess => "dead processes",
        /// A request arrives twice, the second time later.
        DoubledRequest => "doubled requests",
        /// The clock of a process or of the store runs too fast or too slow.
        DriftingClock => "drifting clocks",
        /// A reply or a pushed grant takes up to three seconds.
        LateReply => "late replies",
        /// A request takes up to three seconds.
        LateRequest => "late requests",
        /// A pushed grant is lost.
        LostPush => "lost pushes",
        /// A request is done, and its reply is lost or replaced by a broken connection.
        LostReply => "lost replies",
        /// A request is lost.
        LostRequest => "lost requests",
        /// A process is stopped for a while and goes on.
        PausedProcess => "paused processes",
        /// The store restarts and has its data.
        RestartedStore => "restarts",
        /// Requests of a process do not arrive, or replies, or both.
        Unreachable => "partitions",
    }
}
