//! What connections report.

use std::fmt;

/// Connection events. Called on the thread of a connection: never blocks.
pub(crate) trait ConnectionEvents: fmt::Debug + Send + Sync + 'static {
    /// A message came on one of our channels.
    fn on_message(&self, payload: &[u8]);

    /// A subscription was interrupted: messages may be lost.
    fn on_disconnect(&self) {}

    /// Messages about broken locks may have been lost. The next renewal shows such a break.
    fn on_gap(&self) {}

    /// The master changed: writes that it did not replicate are lost.
    fn on_failover(&self) {}
}

/// Ignores all events.
#[derive(Debug)]
pub(crate) struct NoEvents;

impl ConnectionEvents for NoEvents {
    fn on_message(&self, _payload: &[u8]) {}
}
