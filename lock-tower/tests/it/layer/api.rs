//! What the types are, whatever is inside of them.

use std::convert::Infallible;
use std::fmt::Debug;

use http::Response;
use polylock_tower::plain::{CallError, CallLock, CallLockLayer};
use polylock_tower::{
    HeldLock, KeyExtractor, KeyLock, KeyLockLayer, LockBody, Locker, LockerBuilder, LockerGuard,
    NotHeld, Rejection, RejectionResponder, ResponseFuture,
};

fn shared<T: Debug + Send + Sync + 'static>() {}
fn cloned<T: Clone + Debug + Send + Sync + 'static>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}
fn future<T: Future + Send + Unpin + 'static>() {}
fn dyn_compatible<T: ?Sized>() {}

#[test]
fn they_can_be_named_cloned_and_sent() {
    cloned::<KeyLockLayer>();
    cloned::<KeyLock<()>>();
    cloned::<Locker>();
    cloned::<HeldLock>();
    cloned::<Rejection>();
    cloned::<NotHeld>();
    shared::<LockerGuard>();
    shared::<LockerBuilder>();
    shared::<LockBody<String>>();
    shared::<CallLockLayer<()>>();
    shared::<CallLock<(), ()>>();
    error::<Rejection>();
    error::<NotHeld>();
    error::<CallError<Infallible>>();
    future::<ResponseFuture<Response<String>, Infallible>>();
    dyn_compatible::<dyn KeyExtractor>();
    dyn_compatible::<dyn RejectionResponder>();
}
