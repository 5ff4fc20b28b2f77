use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::layer::{BoxError, LockBody};

use super::reason::IdempotencyReason;

/// What became of reading the body of a response.
pub(super) enum Buffered<B> {
    /// It broke off.
    Broken(LockBody<B>),
    /// It is larger than the limit.
    TooLarge(LockBody<B>),
    Whole(Bytes, Option<HeaderMap>),
}

/// Reads the body of a request to its end. Its trailers are dropped.
pub(super) async fn read_request<B>(body: B, limit: usize) -> Result<Bytes, IdempotencyReason>
where
    B: Body<Error: Into<BoxError>>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(IdempotencyReason::BodyTooLarge);
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(IdempotencyReason::BodyTooLarge),
        Err(_) => Err(IdempotencyReason::BodyUnreadable),
    }
}

/// Reads the body of a response up to `limit` bytes.
pub(super) async fn read_response<B>(body: B, limit: usize) -> Buffered<B>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut body = Box::pin(body);
    let mut read = BytesMut::new();
    let mut trailers = None;
    if body.size_hint().lower() > limit as u64 {
        return Buffered::TooLarge(LockBody::partly_read(read.freeze(), body));
    }
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                return Buffered::Broken(LockBody::broken(read.freeze(), error.into()));
            }
        };
        match frame.into_data() {
            Ok(data) => read.put(data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        if read.len() > limit {
            return Buffered::TooLarge(LockBody::partly_read(read.freeze(), body));
        }
    }
    Buffered::Whole(read.freeze(), trailers)
}
