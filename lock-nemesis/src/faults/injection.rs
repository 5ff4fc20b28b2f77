//! An injected fault and its end.

use std::io;

use crate::world::World;

/// A fault that has struck.
pub(crate) struct Injected {
    /// What it met.
    pub(crate) met: String,
    /// Undoes what lasts.
    pub(crate) heal: Heal,
}

pub(crate) type Heal = Box<dyn FnOnce(&mut World) -> io::Result<()>>;

/// One that lasts until it is healed.
pub(super) fn lasting(
    met: impl Into<String>,
    heal: impl FnOnce(&mut World) -> io::Result<()> + 'static,
) -> io::Result<Injected> {
    let (met, heal) = (met.into(), Box::new(heal));
    Ok(Injected { met, heal })
}

/// One that leaves nothing to heal.
pub(super) fn passing(met: impl Into<String>) -> io::Result<Injected> {
    lasting(met, |_| Ok(()))
}
