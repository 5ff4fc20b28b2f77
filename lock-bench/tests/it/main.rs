//! Runs on locks that need no server, on faulty ones, on servers and by processes.

mod processes;
mod safety;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "zk"))]
mod servers;
mod support;
mod workloads;
