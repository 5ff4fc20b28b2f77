use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use polylock_core::LostReason;

use crate::rejection::{Reason, Rejection, late_trailers, trailers};

use super::body_lock::BodyLock;

pin_project! {
    /// The response body behind the layers of this crate: the body of the inner service, which may hold a
    /// lock until its end, a stored body, or the body of a rejection.
    #[derive(Debug)]
    pub struct LockBody<B> {
        // Sent before the rest.
        read: Option<Bytes>,
        #[pin]
        rest: Rest<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = RestProj]
    enum Rest<B> {
        // Partly read.
        Boxed { body: Pin<Box<B>> },
        Inner { #[pin] body: B, lock: Option<BodyLock> },
        // The trailers or the error of what was read; boxed, so that other bodies stay small.
        Read { end: Option<Result<Box<HeaderMap>, BoxError>> },
    }
}

/// Why a body ends early.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
pub enum BodyError {
    /// The lock was lost while the body was sent.
    #[error("the lock was lost while the body was sent: {0}")]
    Lost(LostReason),
    /// The body took longer than [`HoldUntil::BodyEnd`](crate::HoldUntil::BodyEnd) allows.
    #[error("the body was not read within {0:?}")]
    TooSlow(Duration),
}

impl BodyError {
    /// The end of a stream of gRPC messages.
    fn trailers(self) -> HeaderMap {
        match self {
            Self::Lost(_) => trailers(&Rejection::new(Reason::Lost)),
            Self::TooSlow(_) => late_trailers(&self.to_string()),
        }
    }
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<B> LockBody<B> {
    /// The body of the inner service.
    pub(crate) fn inner(body: B) -> Self {
        Self::with(None, Rest::Inner { body, lock: None })
    }

    /// A body of these bytes.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::read(bytes, None)
    }

    /// The bytes that were read, then these trailers or this error.
    pub(crate) fn read(bytes: Bytes, end: Option<Result<HeaderMap, BoxError>>) -> Self {
        let end = end.map(|end| end.map(Box::new));
        Self::with(Some(bytes), Rest::Read { end })
    }

    /// The bytes that were read of `body`, then the rest of it.
    pub(crate) fn partly_read(read: Bytes, body: Pin<Box<B>>) -> Self {
        Self::with(Some(read), Rest::Boxed { body })
    }

    /// Keeps `lock` until the end of `body`.
    pub(super) fn held(body: B, lock: BodyLock) -> Self {
        let lock = Some(lock);
        Self::with(None, Rest::Inner { body, lock })
    }

    fn with(read: Option<Bytes>, rest: Rest<B>) -> Self {
        let read = read.filter(|read| !read.is_empty());
        Self { read, rest }
    }
}

/// An empty body, for outer layers that respond themselves.
impl<B> Default for LockBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new())
    }
}

impl<B> Body for LockBody<B>
where
    B: Body<Data: From<Bytes>, Error: Into<BoxError>>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.as_mut().project();
        if let Some(read) = this.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read.into()))));
        }
        let (mut body, lock) = match this.rest.project() {
            RestProj::Boxed { body } => return body.as_mut().poll_frame(cx).map_err(Into::into),
            RestProj::Inner { body, lock } => (body, lock),
            RestProj::Read { end } => {
                let end = end.take();
                return Poll::Ready(end.map(|end| end.map(|trailers| Frame::trailers(*trailers))));
            }
        };
        let Some(held) = lock else {
            return body.poll_frame(cx).map_err(Into::into);
        };
        let mut panicked = None;
        let polled = held.poll(cx, |cx| {
            let poll = AssertUnwindSafe(|| body.as_mut().poll_frame(cx));
            catch_unwind(poll).unwrap_or_else(|panic| {
                panicked = Some(panic);
                Poll::Pending
            })
        });
        if let Some(panic) = panicked {
            // Its owner may keep the body and never poll it again, so the lock is released here.
            self.set(Self::default());
            resume_unwind(panic);
        }
        match polled {
            Ok(polled) => {
                let frame = ready!(polled);
                if !matches!(frame, Some(Ok(_))) {
                    // The inner body must not run on without the lock.
                    self.set(Self::default());
                } else if body.is_end_stream() {
                    *lock = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Err(error) => {
                let end = match held.has_trailers() {
                    true => Ok(Frame::trailers(error.trailers())),
                    false => Err(error.into()),
                };
                // This drops the inner body: nothing of it runs any more.
                self.set(Self::default());
                Poll::Ready(Some(end))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none()
            && match &self.rest {
                Rest::Boxed { body } => body.is_end_stream(),
                Rest::Inner { body, .. } => body.is_end_stream(),
                Rest::Read { end } => end.is_none(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.rest {
            Rest::Boxed { body } => body.size_hint(),
            Rest::Inner { body, .. } => body.size_hint(),
            // hyper sends no trailers after a body of a known length.
            Rest::Read { end: Some(_) } => SizeHint::new(),
            Rest::Read { end: None } => SizeHint::with_exact(0),
        };
        let read = self.read.as_ref().map_or(0, Bytes::len) as u64;
        let mut hint = SizeHint::new();
        // The upper one first: the lower one must not be above it.
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint.set_lower(rest.lower().saturating_add(read));
        hint
    }
}
