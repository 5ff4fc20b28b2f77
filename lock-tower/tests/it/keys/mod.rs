//! Which requests name which locks, and what hostile ones get.

mod carried;
mod extractors;
#[cfg(feature = "axum")]
mod path;
mod refused;
mod support;
