use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use pin_project_lite::pin_project;

use super::refusal::Refusal;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// The body of a response behind an [`Idempotency`](super::Idempotency): that of the inner
    /// service, or one that was stored.
    #[derive(Debug)]
    pub struct IdempotencyBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Whole { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
        Inner { #[pin] body: B },
        Rest { read: Option<Bytes>, rest: Rest<B> },
    }
}

/// What comes after that which has been read.
#[derive(Debug)]
enum Rest<B> {
    Body(Pin<Box<B>>),
    Error(Option<BoxError>),
}

/// What became of reading a body.
pub(super) enum Buffered<B> {
    /// It broke off.
    Broken(IdempotencyBody<B>),
    /// It is larger than the limit; the bytes so far come first.
    TooLarge(IdempotencyBody<B>),
    Whole(Bytes, Option<HeaderMap>),
}

impl<B> IdempotencyBody<B> {
    pub(super) fn of(body: B) -> Self {
        let kind = Kind::Inner { body };
        Self { kind }
    }

    pub(super) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        let kind = Kind::Whole { bytes, trailers };
        Self { kind }
    }

    fn rest(read: BytesMut, rest: Rest<B>) -> Self {
        let read = Some(read.freeze()).filter(|read| !read.is_empty());
        let kind = Kind::Rest { read, rest };
        Self { kind }
    }
}

/// Reads the body of a request to its end. Its trailers are dropped.
pub(super) async fn request<B>(body: B, limit: usize) -> Result<Bytes, Refusal>
where
    B: Body<Error: Into<BoxError>>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(Refusal::BodyTooLarge);
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge),
        Err(_) => Err(Refusal::BodyUnreadable),
    }
}

/// Reads the body of a response up to `limit` bytes.
pub(super) async fn response<B>(body: B, limit: usize) -> Buffered<B>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut body = Box::pin(body);
    let mut read = BytesMut::new();
    let mut trailers = None;
    if body.size_hint().lower() > limit as u64 {
        return Buffered::TooLarge(IdempotencyBody::rest(read, Rest::Body(body)));
    }
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let rest = Rest::Error(Some(error.into()));
                return Buffered::Broken(IdempotencyBody::rest(read, rest));
            }
        };
        match frame.into_data() {
            Ok(mut data) => {
                while data.has_remaining() {
                    let chunk = data.chunk();
                    let len = chunk.len();
                    read.extend_from_slice(chunk);
                    data.advance(len);
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        if read.len() > limit {
            return Buffered::TooLarge(IdempotencyBody::rest(read, Rest::Body(body)));
        }
    }
    Buffered::Whole(read.freeze(), trailers)
}

impl<B> Body for IdempotencyBody<B>
where
    B: Body<Data: From<Bytes>, Error: Into<BoxError>>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let data = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
        match self.project().kind.project() {
            KindProj::Whole { bytes, trailers } => match bytes.take() {
                Some(bytes) => data(bytes),
                None => Poll::Ready(
                    trailers
                        .take()
                        .map(|trailers| Ok(Frame::trailers(trailers))),
                ),
            },
            KindProj::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            KindProj::Rest { read, rest } => match (read.take(), rest) {
                (Some(read), _) => data(read),
                (None, Rest::Body(body)) => body.as_mut().poll_frame(cx).map_err(Into::into),
                (None, Rest::Error(error)) => Poll::Ready(error.take().map(Err)),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole { bytes, trailers } => bytes.is_none() && trailers.is_none(),
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Rest { read: Some(_), .. } => false,
            Kind::Rest { rest, .. } => match rest {
                Rest::Body(body) => body.is_end_stream(),
                Rest::Error(error) => error.is_none(),
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len) as u64;
        match &self.kind {
            Kind::Whole { bytes, .. } => SizeHint::with_exact(len(bytes)),
            Kind::Inner { body } => body.size_hint(),
            Kind::Rest { read, rest } => match rest {
                Rest::Body(body) => {
                    let (read, rest) = (len(read), body.size_hint());
                    let mut hint = SizeHint::new();
                    // The upper one first: the lower one must not be above it.
                    if let Some(upper) = rest.upper() {
                        hint.set_upper(upper.saturating_add(read));
                    }
                    hint.set_lower(rest.lower().saturating_add(read));
                    hint
                }
                Rest::Error(_) => SizeHint::new(),
            },
        }
    }
}
