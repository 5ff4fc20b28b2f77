use std::any::Any;
use std::ops::Deref;

use super::LockGuard;

/// A value on its way to its caller. If it is dropped, a lock in it is released without its min hold: nothing
/// was done under that lock.
pub(crate) struct Undelivered<T: 'static>(Option<T>);

impl<T: 'static> Undelivered<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Hands the value to its caller.
    pub(crate) fn deliver(mut self) -> T {
        self.0.take().expect("BUG: it is delivered once")
    }
}

impl<T: 'static> Deref for Undelivered<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("BUG: it is delivered once")
    }
}

impl<T: 'static> Drop for Undelivered<T> {
    fn drop(&mut self) {
        // By type, since the engine runs requests with all kinds of answers.
        let value: &mut dyn Any = &mut self.0;
        let guard = match value.downcast_mut::<Option<LockGuard>>() {
            Some(guard) => guard.take(),
            None => value
                .downcast_mut::<Option<Option<LockGuard>>>()
                .and_then(|guard| guard.take().flatten()),
        };
        if let Some(guard) = guard {
            guard.end_undelivered();
        }
    }
}
