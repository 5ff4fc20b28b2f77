//! The way of one request.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use lock_core::LockKey;
use tower_service::Service;

use crate::answer::{Asked, Reason, Rejection};
use crate::held::{HeldLock, Ward};
use crate::inner::{call, to_completion};
use crate::layer::OnDisconnect;

use super::body::{self, Buffered, IdempotencyBody};
use super::fingerprint::Fingerprint;
use super::refusal::Refusal;
use super::run::RunId;
use super::settings::{Refused, Settings};
use super::slot::ResponseSlot;
use super::store::Put;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Served<B, E> = Result<Response<IdempotencyBody<B>>, E>;

pub(super) async fn serve<S, ReqB, ResB>(
    settings: Arc<Settings>,
    inner: S,
    request: Request<ReqB>,
) -> Served<ResB, S::Error>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqB: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send + 'static,
    ResB: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let (parts, body) = request.into_parts();
    let asked = Asked::of(&parts);
    let name = match settings.name(&parts) {
        Ok(Some(name)) => name,
        Ok(None) => {
            let response = call(inner, Request::from_parts(parts, body)).await?;
            return Ok(response.map(IdempotencyBody::of));
        }
        Err(refused) => return Ok(settings.refuse(&asked, refused)),
    };
    let body = match body::request(body, settings.max_request).await {
        Ok(body) => body,
        Err(refusal) => return Ok(settings.refuse(&asked, Refused::Request(refusal))),
    };
    let fingerprint = Fingerprint::of(&parts, &body);
    let (key, held) = match enter(&settings, &name, fingerprint).await {
        Ok(Entered::Held(key, held)) => (key, held),
        Ok(Entered::Handled(response)) => return Ok(*response),
        Err(refused) => return Ok(settings.refuse(&asked, refused)),
    };
    // Dropped with the work, it gives the lock back although the handler may have kept a clone.
    let ward = Ward::new(held);
    let slot = ResponseSlot {
        key,
        fingerprint,
        run: RunId::random(),
        token: ward.held().fencing_token(),
        retention: settings.retention,
    };
    let on_disconnect = settings.on_disconnect;
    let work = async move { once(&settings, &asked, inner, (parts, body), slot, ward).await };
    match on_disconnect {
        OnDisconnect::Cancel => work.await,
        OnDisconnect::RunToCompletion => to_completion(work).await,
    }
}

enum Entered<B> {
    Handled(Box<Response<IdempotencyBody<B>>>),
    Held(LockKey, HeldLock),
}

/// Acquires the lock. A request that does not get it still looks for a response: the holder of the
/// lock may be replaying it, and replays need no lock service. If too many wait already, it does
/// not look: the store needs its capacity for the responses of handled requests.
async fn enter<B>(
    settings: &Settings,
    name: &str,
    fingerprint: Fingerprint,
) -> Result<Entered<B>, Refused> {
    let key = settings.locker.key(name).map_err(Refused::Lock)?;
    let rejection = match settings.locker.claim_key(key.clone()).await {
        Ok(claim) => return Ok(Entered::Held(key, HeldLock::new(claim))),
        Err(rejection) if rejection.reason() == Reason::QueueFull => {
            return Err(Refused::Lock(rejection));
        }
        Err(rejection) => rejection,
    };
    match settings.look(&key, fingerprint).await {
        Ok(Some(response)) => Ok(Entered::Handled(Box::new(response))),
        Ok(None) | Err(Refusal::StoreUnavailable) => Err(Refused::Lock(rejection)),
        Err(refusal) => Err(Refused::Request(refusal)),
    }
}

/// What happens under the lock, in this order: look, handle, store, release, answer.
async fn once<S, ReqB, ResB>(
    settings: &Settings,
    asked: &Asked,
    inner: S,
    (parts, body): (Parts, Bytes),
    slot: ResponseSlot,
    ward: Ward,
) -> Served<ResB, S::Error>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ReqB: From<Bytes>,
    ResB: Body<Error: Into<BoxError>>,
{
    let work = async {
        match settings.look(&slot.key, slot.fingerprint).await {
            Ok(None) => {}
            Ok(Some(response)) => return Ok(response),
            Err(refusal) => return Ok(settings.refuse(asked, Refused::Request(refusal))),
        }
        let mut request = Request::from_parts(parts, ReqB::from(body));
        request.extensions_mut().insert(ward.held().clone());
        request.extensions_mut().insert(slot.clone());
        let response = call(inner, request).await?;
        if !(settings.stored)(response.status(), response.headers()) {
            return Ok(response.map(IdempotencyBody::of));
        }
        let stored = store(settings, &slot, response).await;
        Ok(stored.unwrap_or_else(|refused| settings.refuse(asked, refused)))
    };
    match ward.held().run(work).await {
        Ok(served) => {
            ward.give_back().await;
            served
        }
        Err(lost) => Ok(settings.refuse(asked, Refused::Lock(lost.into()))),
    }
}

/// Stores a response, and hands it on.
async fn store<B>(
    settings: &Settings,
    slot: &ResponseSlot,
    response: Response<B>,
) -> Result<Response<IdempotencyBody<B>>, Refused>
where
    B: Body<Error: Into<BoxError>>,
{
    let (head, body) = response.into_parts();
    let (kept, body) = match body::response(body, settings.max_response).await {
        Buffered::Broken(body) => {
            tracing::warn!("the body of a response broke off, only that there was one is stored");
            (None, body)
        }
        Buffered::TooLarge(body) => (None, body),
        Buffered::Whole(bytes, trailers) => {
            let body = IdempotencyBody::whole(bytes.clone(), trailers);
            (Some(bytes), body)
        }
    };
    match settings.keep(slot, &head, kept).await {
        Put::Stored => Ok(Response::from_parts(head, body)),
        // Another request has stored one, so this request was not alone. The stored response, which
        // others will get, is the better one here too.
        Put::Refused => {
            tracing::error!("two requests with one Idempotency-Key were handled at once");
            match settings.look(&slot.key, slot.fingerprint).await {
                Ok(Some(response)) => Ok(response),
                Err(refusal @ Refusal::ResponseNotKept) => Err(Refused::Request(refusal)),
                _ => Err(Refused::Lock(Rejection::new(Reason::Lost))),
            }
        }
    }
}
