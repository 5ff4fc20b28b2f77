use std::sync::{MutexGuard, PoisonError};

/// A mutex that ignores poisoning, for state that no panic leaves half changed. For implementors.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Puts `value` behind a mutex.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks it, as [`std::sync::Mutex::lock`] does.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the value out.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
