//! Measures distributed locks side by side, on one's own machines, and checks them while it does.
//!
//! `lockctl bench` is its command line. A [`plan::Plan`] says what is measured, a
//! [`report::Report`] what came out.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod connection;
mod environment;
mod measure;
pub mod plan;
mod probe;
pub mod report;
mod run;
mod servers;
pub mod subject;
pub mod target;
pub mod worker;
mod workloads;

pub use self::run::{Progress, run};
