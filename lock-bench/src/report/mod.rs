//! What came out of a run: one value, which becomes JSON, a table and a page.

mod histogram;
mod model;

pub use self::histogram::Latencies;
pub use self::model::{
    Environment, Parameters, Report, Requests, SCHEMA, Sample, Series, TargetInfo, TargetKind, Turn,
};
