use std::sync::Arc;

use crate::layers::{Event, EventKind, Observer};

/// Hears of a part what the whole does not know: its renewals.
#[derive(Debug)]
pub(crate) struct OfPart(Arc<dyn Observer>);

impl OfPart {
    pub(crate) fn of(whole: Arc<dyn Observer>) -> Arc<dyn Observer> {
        Arc::new(Self(whole))
    }
}

impl Observer for OfPart {
    fn event(&self, event: &Event<'_>) {
        if let EventKind::Renewed { .. } | EventKind::RenewalFailed { .. } = event.kind {
            self.0.event(event);
        }
    }
}
