use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use polylock::DistributedLock;
use polylock::tower::plain::{CallError, CallLockLayer};
use polylock::tower::{HeldLock, Keys, Locker};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use super::Job;
use super::closed_loop::{PAUSE, is_over};
use super::{before_last_call, stuck, together};
use crate::clock;
use crate::measure::{Log, Recorded, Span, Window};
use crate::report::Requests;
use crate::subject::Failure;

/// Has clients in this process send requests to a service in this process, each with a key of its
/// own: through the layer and without it, in turn.
pub(crate) async fn serve_requests(
    locks: Arc<dyn DistributedLock>,
    job: Job,
    window: Window,
) -> Result<Recorded, Failure> {
    let ttl = job.ttl;
    let locker = Locker::builder(locks, &job.prefix)
        .wait(clock::until(window.end).max(Duration::from_millis(1)))
        .request(|request| request.with_ttl(ttl).with_max_hold(None))
        .build()?;
    let hold = job.hold;
    let plain = service_fn(move |call| serve(call, hold));
    let layer = CallLockLayer::new(
        locker,
        |call: &Call| Ok(Keys::one(&*call.name)),
        |call: &mut Call, held| call.held = Some(held),
    );
    let locked = layer.layer(plain);
    let contenders = job.contenders.map(|number| {
        let log = Log::new(window, job.max_spans);
        client(number, log, plain, locked.clone(), window)
    });
    together(contenders, window).await
}

/// A request, with what the layer puts into it.
struct Call {
    name: Arc<str>,
    held: Option<HeldLock>,
}

/// What the handler saw.
struct LayerResponse {
    token: Option<u64>,
    began: u64,
    ended: u64,
}

async fn serve(call: Call, hold: Duration) -> Result<LayerResponse, Infallible> {
    let began = clock::now();
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    let token = call.held.and_then(|held| held.fencing_token());
    Ok(LayerResponse {
        token: token.map(u64::from),
        began,
        ended: clock::now(),
    })
}

async fn client<P, L>(
    number: u32,
    mut log: Log,
    plain: P,
    locked: L,
    window: Window,
) -> Result<Recorded, Failure>
where
    P: Service<Call, Response = LayerResponse, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync,
    L: Service<Call, Response = LayerResponse, Error = CallError<Infallible>, Future: Send>
        + Clone
        + Send
        + Sync,
{
    let (name, mut requests) = (Arc::<str>::from(number.to_string()), Requests::default());
    let call = || Call {
        name: Arc::clone(&name),
        held: None,
    };
    clock::sleep_until(window.start).await;
    let until_end = async {
        loop {
            let requested = clock::now();
            if requested >= window.end {
                return;
            }
            let answer = locked.clone().oneshot(call()).await;
            let answered = clock::now();
            match answer {
                Ok(answer) => {
                    log.push(Span {
                        key: number,
                        contender: number,
                        token: answer.token,
                        requested,
                        acquired: answer.began,
                        releasing: answer.ended,
                        released: answered,
                    });
                    if window.has(requested) {
                        requests.with.record_ns(answered - requested);
                    }
                }
                Err(_) if is_over(window) => log.push_unserved(number, requested),
                Err(error) => {
                    log.push_failure(&Failure::of("rejected", &error));
                    tokio::time::sleep(PAUSE).await;
                }
            }
            let requested = clock::now();
            let Ok(_answer) = plain.clone().oneshot(call()).await;
            if window.has(requested) {
                requests.without.record_ns(clock::now() - requested);
            }
            tokio::task::coop::consume_budget().await;
        }
    };
    if before_last_call(window, until_end).await.is_none() {
        log.push_failure(&stuck());
    }
    Ok(Recorded {
        layer: Some(requests),
        ..Recorded::of(number, log)
    })
}
