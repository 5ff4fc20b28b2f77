use std::fmt;

/// What is true of a lock that works.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Invariant {
    Fencing,
    Liveness,
    LossSignal,
    MutualExclusion,
    Ownership,
}

impl Invariant {
    /// In the order in which they are explained.
    pub(crate) const ALL: [Self; 5] = [
        Self::MutualExclusion,
        Self::Ownership,
        Self::Liveness,
        Self::LossSignal,
        Self::Fencing,
    ];

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Fencing => "a late write of a former holder is refused",
            Self::Liveness => "a holder that dies does not keep the others out for ever",
            Self::LossSignal => "who loses the lock in the middle of the work is told",
            Self::MutualExclusion => "two are never inside at once",
            Self::Ownership => "nobody removes or overwrites the lock of another",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fencing => "fencing",
            Self::Liveness => "liveness",
            Self::LossSignal => "loss signal",
            Self::MutualExclusion => "mutual exclusion",
            Self::Ownership => "ownership",
        })
    }
}
