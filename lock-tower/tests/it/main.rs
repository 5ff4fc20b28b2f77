//! What the layers promise: on the memory backend and a clock that stands still, behind servers of
//! HTTP and gRPC, and on databases.

mod answers;
#[cfg(feature = "tonic")]
mod grpc;
mod idempotency;
mod keys;
mod layer;
#[cfg(feature = "axum")]
mod load;
mod support;
