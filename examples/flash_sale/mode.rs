/// What keeps two orders from taking the same piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Conditional,
    Lock,
    LockFencing,
    None,
    Optimistic,
}

impl Mode {
    /// In the order in which they are told.
    pub(crate) const ALL: [Self; 5] = [
        Self::None,
        Self::Lock,
        Self::LockFencing,
        Self::Conditional,
        Self::Optimistic,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Conditional => "conditional",
            Self::Lock => "lock",
            Self::LockFencing => "lock-fencing",
            Self::None => "none",
            Self::Optimistic => "optimistic",
        }
    }

    /// Whether the layer is on the route.
    pub(crate) fn locks(self) -> bool {
        matches!(self, Self::Lock | Self::LockFencing)
    }

    /// Whether it sells each piece once.
    pub(crate) fn is_exact(self) -> bool {
        self != Self::None
    }
}
