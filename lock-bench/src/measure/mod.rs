//! What a measurement has recorded, and what it means. Nothing here waits or talks.

mod order;
mod record;
mod safety;
mod sample;

pub(crate) use self::record::{Log, Recorded, Span, Waiting, Window};
pub(crate) use self::sample::sample;
