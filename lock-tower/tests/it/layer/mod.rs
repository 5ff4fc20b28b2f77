//! What the layer promises, on the memory backend and a clock that stands still.

mod api;
mod body;
mod bounds;
mod contract;
mod disconnect;
mod handed;
mod hold;
mod lost;
mod permits;
mod plain;
#[cfg(feature = "axum")]
mod routes;
mod safe_methods;
mod unavailable;
