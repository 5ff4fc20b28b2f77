//! What a measurement has recorded, and what it means. Nothing here waits or talks.

mod backlog;
mod log;
mod order;
mod recorded;
mod safety;
mod sample;
mod span;

pub(crate) use self::log::Log;
pub(crate) use self::recorded::Recorded;
pub(crate) use self::sample::sample;
pub(crate) use self::span::{NO_TOKEN, Span, Waiting, Window};
