use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use lock_core::LostReason;
use pin_project_lite::pin_project;

use crate::held::Ward;

use super::options::OnLost;
use super::sending::Sending;

pin_project! {
    /// The body of a response behind a [`KeyLock`](crate::KeyLock): that of the inner service, which
    /// may hold a lock until its end, or an answer of the layer.
    #[derive(Debug)]
    pub struct LockBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Answer { bytes: Option<Bytes> },
        Inner { #[pin] body: B, sending: Option<Sending> },
    }
}

/// Why a body ends before its time.
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

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<B> LockBody<B> {
    pub(super) fn of(body: B) -> Self {
        let kind = Kind::Inner {
            body,
            sending: None,
        };
        Self { kind }
    }

    pub(super) fn answer(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        let kind = Kind::Answer { bytes };
        Self { kind }
    }

    /// Keeps the lock until the end of `body`, and for at most `max`.
    pub(super) fn held(body: B, ward: Ward, max: Duration, on_lost: OnLost) -> Self {
        let sending = Some(Sending::new(ward, max, on_lost));
        let kind = Kind::Inner { body, sending };
        Self { kind }
    }
}

/// An empty body; layers outside of this one that answer by themselves need it.
impl<B> Default for LockBody<B> {
    fn default() -> Self {
        Self::answer(Bytes::new())
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
        let (mut body, sending) = match self.as_mut().project().kind.project() {
            KindProj::Answer { bytes } => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into()))));
            }
            KindProj::Inner { body, sending } => (body, sending),
        };
        let Some(held) = sending else {
            return body
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into)));
        };
        let polled = match held.begin(cx) {
            Ok(()) => {
                let polled = body.as_mut().poll_frame(cx);
                // What was made while the lock went is not sent.
                held.end().map(|()| polled)
            }
            Err(error) => Err(error),
        };
        match polled {
            Ok(polled) => {
                let frame = ready!(polled);
                if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
                    *sending = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Err(error) => {
                // The inner body goes with it: nothing of it runs any more.
                self.set(Self::default());
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Answer { bytes } => bytes.is_none(),
            Kind::Inner { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Answer { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Kind::Inner { body, .. } => body.size_hint(),
        }
    }
}
