use std::sync::Mutex;

use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use polylock_tower::{RejectedRequest, RejectionObserver};
use tokio::task::JoinHandle;

use super::InTime as _;

/// An answer as the client sees it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Said {
    pub(crate) async fn read<B: Body<Error: std::fmt::Debug>>(response: Response<B>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().in_time("the end of the body").await;
        let body = body.expect("the body ends").to_bytes();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.into()).expect("text"),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("a header of text"))
    }

    /// Whether it is the stored answer to another request.
    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Expects a problem document with this reason, and returns it.
    #[track_caller]
    pub(crate) fn assert_refused(&self, status: u16, reason: &str) -> serde_json::Value {
        assert_eq!(self.status, status, "{self:?}");
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(problem["status"], status, "{self:?}");
        assert_eq!(problem["reason"], reason, "{self:?}");
        problem
    }
}

/// A request that is on its way.
#[derive(Debug)]
pub(crate) struct Sent(JoinHandle<Said>);

impl Sent {
    pub(crate) fn new(answer: impl Future<Output = Said> + Send + 'static) -> Self {
        Self(tokio::spawn(answer))
    }

    /// The client goes away.
    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    #[track_caller]
    pub(crate) fn said(self) -> impl Future<Output = Said> {
        let answered = self.0.answered();
        async { answered.await.expect("no panic") }
    }
}

/// Rejections as an observer gets them.
#[derive(Debug, Default)]
pub(crate) struct Rejections(Mutex<Vec<String>>);

impl Rejections {
    /// Class, reason and status of each.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().expect("nothing panics").clone()
    }
}

impl RejectionObserver for Rejections {
    fn rejected(&self, rejected: &RejectedRequest<'_>) {
        let (class, reason, status) = (rejected.class, rejected.reason, rejected.status.as_u16());
        let line = format!("{class} {reason} {status}");
        self.0.lock().expect("nothing panics").push(line);
    }
}
