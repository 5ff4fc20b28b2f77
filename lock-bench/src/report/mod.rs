//! The result of a run: one value, which becomes JSON, tables, plots and a page.

pub mod compare;
mod figures;
mod hdr;
mod histogram;
mod model;
mod page;
mod plots;
mod tables;
pub mod units;

#[cfg(test)]
mod tests;

pub use self::figures::{Figures, Quantiles, Spread};
pub use self::hdr::HdrFile;
pub use self::histogram::Latencies;
pub use self::model::{
    Environment, Footprint, Parameters, Report, Requests, SCHEMA, Sample, Series, TargetInfo,
    TargetKind, Turn,
};
pub use self::plots::Plot;
pub use self::tables::{Row, Table};
