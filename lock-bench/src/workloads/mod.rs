//! What contenders do: the loops around a subject.

mod closed;
mod crowd;
mod job;
mod layer;
mod open;
mod random;
mod take;
mod turn;

pub(crate) use self::crowd::contend;
pub(crate) use self::job::{Job, Task};
pub(crate) use self::layer::serve_requests;
pub(crate) use self::random::Random;
pub(crate) use self::take::{Taken, take};
