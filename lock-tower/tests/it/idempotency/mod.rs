//! Requests that are repeated.

mod answers;
mod bodies;
mod duplicates;
mod faults;
mod retention;
mod stores;
#[cfg(feature = "postgres")]
mod stuck;
mod support;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod transaction;
