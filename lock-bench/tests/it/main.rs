//! Runs on locks that need no server, on faulty ones, on servers and by processes.

mod processes;
mod safety;
#[cfg(feature = "postgres")]
mod servers;
mod support;
mod workloads;
