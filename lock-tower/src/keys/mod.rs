//! Ready-made extractors, which read from the head of a request which lock it needs.
//!
//! [`Header`], [`Cookie`] and [`QueryParam`] read one field. A closure does everything else: it joins
//! several parts, reads extensions that an earlier layer has set, names one lock for all requests, or lets
//! a request pass. With the feature `axum`,
//! [`KeyLockLayer::from_extractor`](crate::KeyLockLayer::from_extractor) reads the path, or anything else
//! that an axum extractor reads.
//!
//! # Guarantees
//!
//! Two requests have the same lock if and only if they name it with the same bytes: nothing is normalized,
//! cut or replaced. A field that occurs twice is rejected. A request that is rejected here reaches neither
//! the backend nor the queue.
//!
//! # Examples
//!
//! ```
//! use http::request::Parts;
//! use polylock_tower::keys::{Header, QueryParam};
//! use polylock_tower::{KeyError, KeyExtractor as _, Keys};
//!
//! #[derive(Clone)]
//! struct User { id: u64 }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A tenant goes before what clients choose: none can take the lock of another.
//! let (tenant, seat) = (Header::new("x-tenant")?, QueryParam::new("seat"));
//! let seats = move |parts: &Parts| Ok(Keys::joined([tenant.read(parts)?, seat.read(parts)?]));
//! // The authentication puts the user there; without it, the service is set up wrongly.
//! let users = |parts: &Parts| match parts.extensions.get::<User>() {
//!     Some(user) => Ok(Keys::one(user.id.to_string())),
//!     None => Err(KeyError::Misconfigured("nobody has authenticated the user".to_owned())),
//! };
//! // Requests that name no draft pass without a lock.
//! let draft = Header::new("x-draft")?;
//! let drafts = move |parts: &Parts| match draft.keys(parts) {
//!     Err(KeyError::Missing(_)) => Ok(Keys::Skip),
//!     keys => keys,
//! };
//!
//! let request = http::Request::post("/book?seat=7").header("x-tenant", "acme/eu");
//! let (parts, ()) = request.extension(User { id: 3 }).body(())?.into_parts();
//! assert_eq!(seats.keys(&parts)?, Keys::one("acme%2Feu/7"));
//! assert_eq!(users.keys(&parts)?, Keys::one("3"));
//! assert_eq!(drafts.keys(&parts)?, Keys::Skip);
//! # Ok(()) }
//! ```

pub(crate) mod extractor;
mod fields;

pub(crate) use self::extractor::{KeyError, KeyExtractor, Keys, join};
pub(crate) use self::fields::{NameOrigin, header_value};

pub use self::fields::{Cookie, Header, QueryParam};

/// Max length of a name from the extractors here and from those of axum, in bytes.
///
/// The lock service never sees more than 256 bytes, since longer names are hashed. This limits how much a
/// request can make the service hash and keep.
pub const MAX_NAME_LEN: usize = 8 * 1024;
