//! The way of one request.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{Request, Response};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use crate::answer::{Asked, Rejection};
use crate::held::{HeldLock, Ward};
use crate::inner::{call, to_completion};

use super::body::LockBody;
use super::options::{HoldUntil, OnDisconnect, OnLost};
use super::settings::Settings;

type Served<B, E> = Result<Response<LockBody<B>>, E>;

pub(super) async fn serve<S, ReqB, ResB>(
    settings: Arc<Settings>,
    inner: S,
    request: Request<ReqB>,
) -> Served<ResB, S::Error>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqB: Send + 'static,
    ResB: Body + Send + 'static,
{
    let began = Instant::now();
    let (mut parts, body) = request.into_parts();
    let asked = Asked::of(&parts);
    let claim = match settings.enter(&mut parts, &asked).await {
        Ok(Some(claim)) => claim,
        Ok(None) => {
            let response = call(inner, Request::from_parts(parts, body)).await?;
            return Ok(response.map(LockBody::of));
        }
        Err(rejection) => return Ok(settings.refuse(&asked, &rejection)),
    };
    let held = HeldLock::new(claim);
    parts.extensions.insert(held.clone());
    let request = Request::from_parts(parts, body);
    let waited = began.elapsed();
    let on_disconnect = settings.on_disconnect;
    let handled = async move {
        let handled = handle(&settings, &asked, inner, request, &held).await;
        handled.map(|response| settings.decorate(response, &held, waited))
    };
    match on_disconnect {
        OnDisconnect::Cancel => handled.await,
        OnDisconnect::RunToCompletion => to_completion(handled).await,
    }
}

/// Runs the handler under its locks, and gives them back when the settings say so.
async fn handle<S, ReqB, ResB>(
    settings: &Settings,
    asked: &Asked,
    inner: S,
    request: Request<ReqB>,
    held: &HeldLock,
) -> Served<ResB, S::Error>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ResB: Body,
{
    // Dropped with this future, it gives the locks back although the handler may have kept a clone.
    let ward = (settings.hold != HoldUntil::Manual).then(|| Ward::new(held.clone()));
    let work = call(inner, request);
    let handled = match settings.on_lost {
        OnLost::Cancel => held.run(work).await,
        OnLost::Continue => Ok(work.await),
    };
    let response = match handled {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            give_back(ward).await;
            return Err(error);
        }
        Err(lost) => return Ok(settings.refuse(asked, &lost.into())),
    };
    match (settings.hold, ward) {
        (HoldUntil::BodyEnd { max }, Some(ward)) if !response.body().is_end_stream() => {
            Ok(response.map(|body| LockBody::held(body, ward, max, settings.on_lost)))
        }
        (_, ward) => {
            give_back(ward).await;
            Ok(response.map(LockBody::of))
        }
    }
}

async fn give_back(ward: Option<Ward>) {
    if let Some(ward) = ward {
        ward.give_back().await;
    }
}

impl Settings {
    fn refuse<B: Body>(&self, asked: &Asked, rejection: &Rejection) -> Response<LockBody<B>> {
        let answer = match rejection.response() {
            Some(response) => response.clone(),
            None => self.answer.answer(asked, rejection),
        };
        let reason = rejection.reason().as_str();
        self.locker.tell_refused(reason, answer.status());
        answer.map(LockBody::answer)
    }

    fn decorate<B>(
        &self,
        mut response: Response<LockBody<B>>,
        held: &HeldLock,
        waited: Duration,
    ) -> Response<LockBody<B>> {
        if self.server_timing {
            let text = format!("lock;dur={:.1}", waited.as_secs_f64() * 1e3);
            let value = HeaderValue::from_str(&text).expect("BUG: digits are a header");
            response.headers_mut().append(SERVER_TIMING, value);
        }
        if let Some(token) = held.fencing_token().filter(|_| self.fencing_token) {
            let value = HeaderValue::from(token.value());
            response.headers_mut().insert(X_FENCING_TOKEN, value);
        }
        response
    }
}

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const X_FENCING_TOKEN: HeaderName = HeaderName::from_static("x-fencing-token");
