//! The records of a measurement, and what they mean. Nothing here waits or does I/O.

mod order;
mod record;
mod safety;
mod sample;

pub(crate) use self::record::{HoldSpan, RecordedSpans, SpanLog, UnservedRequest, Window};
pub(crate) use self::sample::sample;
