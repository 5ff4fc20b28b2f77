use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use lock_core::LostReason;
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::held::Ward;

use super::options::OnLost;

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
        Inner { #[pin] body: B, hold: Option<Hold> },
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
        let kind = Kind::Inner { body, hold: None };
        Self { kind }
    }

    pub(super) fn answer(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        let kind = Kind::Answer { bytes };
        Self { kind }
    }

    /// Keeps the lock until the end of `body`, and for at most `max`.
    pub(super) fn held(body: B, ward: Ward, max: Duration, on_lost: OnLost) -> Self {
        let hold = Some(Hold::new(ward, max, on_lost));
        let kind = Kind::Inner { body, hold };
        Self { kind }
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
        let (mut body, hold) = match self.as_mut().project().kind.project() {
            KindProj::Answer { bytes } => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into()))));
            }
            KindProj::Inner { body, hold } => (body, hold),
        };
        if let Some(error) = hold.as_mut().and_then(|hold| hold.cut(cx)) {
            // The inner body goes with it: nothing of it runs any more.
            self.set(Self::answer(Bytes::new()));
            return Poll::Ready(Some(Err(error.into())));
        }
        let frame = ready!(body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            *hold = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
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

/// The lock of a body that is being sent.
#[derive(Debug)]
struct Hold {
    ward: Ward,
    on_lost: OnLost,
    /// `None` once there is nothing more to hear.
    cut: Option<oneshot::Receiver<BodyError>>,
    watch: AbortHandle,
}

impl Hold {
    /// A task of its own looks at the time: nobody polls the body of a client that does not read.
    fn new(ward: Ward, max: Duration, on_lost: OnLost) -> Self {
        let held = ward.held().clone();
        let (cuts, cut) = oneshot::channel();
        let watch = tokio::spawn(async move {
            let error = match tokio::time::timeout(max, held.lost()).await {
                Ok(reason) if on_lost == OnLost::Cancel => BodyError::Lost(reason),
                Ok(_) => return,
                Err(_) => BodyError::TooSlow(max),
            };
            // Before the lock is free: nothing of the body is sent after that.
            if cuts.send(error).is_ok() {
                drop(held.release().await);
            }
        });
        Self {
            ward,
            on_lost,
            cut: Some(cut),
            watch: watch.abort_handle(),
        }
    }

    /// Whether nothing more of the body may be sent.
    fn cut(&mut self, cx: &mut Context<'_>) -> Option<BodyError> {
        if let Some(cut) = &mut self.cut
            && let Poll::Ready(told) = Pin::new(cut).poll(cx)
        {
            self.cut = None;
            if let Ok(error) = told {
                return Some(error);
            }
        }
        // The task that watches may get to run later than this one.
        let lost = self.ward.held().lost_reason();
        lost.filter(|_| self.on_lost == OnLost::Cancel)
            .map(BodyError::Lost)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
