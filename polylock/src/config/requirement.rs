//! What a class of locks requires of its backend.

use std::fmt;

use polylock_core::{Capabilities, Fencing, Waiting};

use super::value::{Scalar, instead_of, quoted};

/// Something that a class requires of its backend, as in `require = ["fencing"]`.
///
/// # Examples
///
/// ```
/// use polylock::config::{Config, Requirement};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "memory:"
///     [class.payment]
///     require = ["strong-fencing"]
/// "#)?;
/// assert_eq!(config.classes()[0].require, [Requirement::StrongFencing]);
///
/// let locks = config.connect().await?; // refuses a backend without it
/// let payments = locks.class("payment")?;
/// assert!(Requirement::StrongFencing.is_met_by(&payments.capabilities()));
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Requirement {
    /// `admin`: holders can be listed, inspected and broken.
    Admin,
    /// `downgrade`: an exclusive lock can become a shared one without a gap.
    Downgrade,
    /// `fair`: waiters are served in the order of their arrival.
    Fair,
    /// `fencing`: there are tokens, at least of [`Fencing::BestEffort`].
    Fencing,
    /// `permits`: a lock can have a number of holders.
    Permits,
    /// `push`: waiters are notified and do not poll.
    Push,
    /// `reentry`: an owner can enter a lock that it holds.
    Reentry,
    /// `shared`: a lock can have readers.
    Shared,
    /// `strong-fencing`: tokens increase under every fault, [`Fencing::Strong`].
    StrongFencing,
}

impl Requirement {
    /// All of them, in alphabetical order.
    pub const ALL: &[Self] = &[
        Self::Admin,
        Self::Downgrade,
        Self::Fair,
        Self::Fencing,
        Self::Permits,
        Self::Push,
        Self::Reentry,
        Self::Shared,
        Self::StrongFencing,
    ];

    /// How it is written in the file, and what has it.
    fn facts(self) -> (&'static str, fn(&Capabilities) -> bool) {
        match self {
            Self::Admin => ("admin", |has| has.admin),
            Self::Downgrade => ("downgrade", |has| has.downgrade),
            Self::Fair => ("fair", |has| has.fair),
            Self::Fencing => ("fencing", |has| has.fencing >= Fencing::BestEffort),
            Self::Permits => ("permits", |has| has.permits),
            Self::Push => ("push", |has| has.waiting == Waiting::Push),
            Self::Reentry => ("reentry", |has| has.reentry),
            Self::Shared => ("shared", |has| has.shared),
            Self::StrongFencing => ("strong-fencing", |has| has.fencing >= Fencing::Strong),
        }
    }

    /// How it is written in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Whether a backend, or a stack of layers on one, has it.
    #[must_use]
    pub fn is_met_by(self, capabilities: &Capabilities) -> bool {
        self.facts().1(capabilities)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
        Self::ALL.iter().map(|known| known.name())
    }
}

impl TryFrom<Scalar> for Requirement {
    type Error = String;

    fn try_from(value: Scalar) -> Result<Self, String> {
        let text = value.text()?;
        let known = Self::ALL.iter().find(|known| known.name() == text);
        known.copied().ok_or_else(|| {
            let hint = instead_of(&text, Self::names());
            format!("unknown requirement {}{hint}", quoted(&text))
        })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_met_by_what_has_it_and_by_nothing_less() {
        let least = Capabilities::minimal("example");
        for requirement in Requirement::ALL.iter().copied() {
            assert!(!requirement.is_met_by(&least), "{requirement}");
            let named = Requirement::try_from(Scalar::Text(requirement.to_string()));
            assert_eq!(named, Ok(requirement));
            let mut enough = least;
            match requirement {
                Requirement::Admin => enough.admin = true,
                Requirement::Downgrade => enough.downgrade = true,
                Requirement::Fair => enough.fair = true,
                Requirement::Fencing => enough.fencing = Fencing::BestEffort,
                Requirement::Permits => enough.permits = true,
                Requirement::Push => enough.waiting = Waiting::Push,
                Requirement::Reentry => enough.reentry = true,
                Requirement::Shared => enough.shared = true,
                Requirement::StrongFencing => enough.fencing = Fencing::Strong,
            }
            assert!(requirement.is_met_by(&enough), "{requirement}");
        }
        let mut weak = least;
        weak.fencing = Fencing::BestEffort;
        assert!(!Requirement::StrongFencing.is_met_by(&weak));
        assert!(Requirement::names().is_sorted());
    }
}
