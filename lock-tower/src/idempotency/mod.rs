//! Requests that a client may repeat: one is handled, and all repetitions get its response.
//!
//! [`IdempotencyLayer`] serves the header `Idempotency-Key` as draft-ietf-httpapi-idempotency-key-header-07
//! describes it. A store of responses alone does not make a request idempotent: two requests at once both
//! find nothing stored, and both are handled. Here the second finds the lock of its key held.
//!
//! | the request | is answered with |
//! |---|---|
//! | has no key | 400, or passes: [`MissingKey`] |
//! | has a malformed key | 400 |
//! | has a body that is too large to be kept in memory | 413 |
//! | repeats one that is being handled | 409, or waits for it: [the locker](#waiting) |
//! | repeats one that has been handled | the stored response, with `Idempotent-Replayed: true` |
//! | exceeds the [max waiters](crate::LockerBuilder::max_waiters_per_key) of its key, or of all keys | 429; a stored response is not looked up |
//! | repeats one whose response was too large to be stored, or broke off | 409 |
//! | has the key of another request | 422 |
//! | comes while stored responses cannot be read | 503, the handler does not run |
//! | comes while the lock service cannot be reached | the stored response, or 503; or it is handled without a lock: [`Bypass`] |
//! | lost its lock before its response was complete | 503; the response is not stored, unless the handler stored it |
//! | lost its lock while its response was stored | its response; if that could not be stored, the one of another request, or 503 |
//! | was not alone under its lock | the stored response; 503 if that is of another request |
//!
//! "Another request" is one whose method, path, query or body differs: their hash is stored with
//! the response. The host is not compared. The path is the one that the layer sees: nested routers strip
//! their prefix.
//!
//! [`Bypass`]: crate::WhenUnavailable::Bypass
//!
//! # Keys
//!
//! A key has 1 to 255 characters: printable ASCII in double quotes (RFC 8941, 3.3.3), or, without
//! quotes, neither spaces nor any of `"`, `\`, `,` and `;`. `"8e03"` and `8e03` are one key. A header that
//! is sent twice is rejected. A client that knows a key and its request gets the response, within a
//! [`KeyScope`]. Each client has its own scope, or all share one, in which a client can use the key of
//! another. There is no default.
//!
//! # Waiting
//!
//! With [`try_only`](crate::LockerBuilder::try_only), a repetition of a request that is still being handled
//! gets 409, as the draft has it. Otherwise it waits for the response, and gets 409 if the wait times out.
//!
//! # Guarantees
//!
//! While the lock and the store work, the handler runs for one request of a key at a time, and not again while
//! the response of an earlier one is stored. A response whose body breaks off counts: the store records that
//! there was one. The handler runs again
//!
//! - if its response is not [stored](IdempotencyLayer::with_stored), as every 5xx, 401 and 403, if it
//!   panicked, or if its service returned an error,
//! - if the lock was lost while it ran (503): its effects are unknown, and the fencing token in
//!   [`HeldLock`](crate::HeldLock) keeps out its late writes,
//! - if the lock was lost while its response was stored, and a repetition came before the response was there,
//! - if its client left before it returned, and the layer is set to
//!   [cancel](crate::OnDisconnect::Cancel) it then,
//! - if its process ended before the response was stored,
//! - if it ran without a lock, because the layer is configured to allow that,
//! - if the response could not be stored in several attempts: the client gets it, a warning is logged,
//!   and a repetition is handled again.
//!
//! A handler that writes to the same database as the responses can close these gaps: it stores its response
//! in the transaction of its effect (`SqlResponses::put_in`).

mod key;
mod layer;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod service;
#[cfg(feature = "_sql")]
mod sql;
mod store;
mod stored;

pub use self::key::KeyScope;
pub use self::layer::{IdempotencyLayer, MissingKey};
pub use self::memory::MemoryResponses;
#[cfg(feature = "redis")]
pub use self::redis::RedisResponses;
pub use self::service::Idempotency;
#[cfg(feature = "_sql")]
pub use self::sql::{SqlConnection, SqlDialect, SqlResponses};
pub use self::store::{Put, ResponseStore, StoreError};
pub use self::stored::{PendingResponse, StoredResponse};
