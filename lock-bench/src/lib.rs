//! Measures distributed locks side by side, on one's own machines, and checks them while it does.
//!
//! `lockctl bench` is its command line. A [`plan::Plan`] says what is measured, a
//! [`report::Report`] what came out.

pub mod plan;
pub mod report;
mod run;
mod servers;
pub mod subject;
pub mod target;
pub mod worker;

pub use self::run::{Progress, run};
