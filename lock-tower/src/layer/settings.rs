use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use lock_core::Mode;

use crate::answer::{Answer, Asked, Problem, Rejection, grpc_timeout};
use crate::held::HeldLock;
use crate::keys::{KeyError, KeyExtractor, Keys};
use crate::locker::{Claim, Locker, no_key};

use super::options::{HoldUntil, OnDisconnect, OnLost, SafeMethods};

/// The settings of a layer. All services of it share one.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) locker: Locker,
    pub(super) source: Source,
    pub(super) hold: HoldUntil,
    pub(super) on_disconnect: OnDisconnect,
    pub(super) on_lost: OnLost,
    pub(super) safe_methods: SafeMethods,
    pub(super) answer: Arc<dyn Answer>,
    pub(super) server_timing: bool,
    pub(super) fencing_token: bool,
}

/// Where keys come from.
#[derive(Clone)]
pub(super) enum Source {
    #[cfg(feature = "axum")]
    Axum(Arc<dyn crate::keys::FromParts>),
    Head(Arc<dyn KeyExtractor>),
}

impl Source {
    #[cfg_attr(
        not(feature = "axum"),
        expect(clippy::unused_async, reason = "extractors of axum are")
    )]
    async fn keys(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        match self {
            #[cfg(feature = "axum")]
            Self::Axum(extractor) => extractor.keys(parts).await,
            Self::Head(extractor) => extractor.keys(parts),
        }
    }
}

impl Settings {
    pub(super) fn new(locker: Locker, source: Source) -> Self {
        Self {
            locker,
            source,
            hold: HoldUntil::default(),
            on_disconnect: OnDisconnect::default(),
            on_lost: OnLost::default(),
            safe_methods: SafeMethods::default(),
            answer: Arc::new(Problem::new()),
            server_timing: false,
            fencing_token: false,
        }
    }

    /// Acquires the locks of a request; `None` if it needs none.
    pub(super) async fn enter(
        &self,
        parts: &mut Parts,
        asked: &Asked,
    ) -> Result<Option<Claim>, Rejection> {
        // Not that of a layer outside: a handler that takes one is to have the lock of its own layer.
        parts.extensions.remove::<HeldLock>();
        let Some(mode) = self.mode(asked) else {
            return Ok(None);
        };
        let keys = self.source.keys(parts).await.map_err(no_key)?;
        let patience = asked.is_grpc().then(|| grpc_timeout(parts)).flatten();
        self.locker.claim(keys, mode, patience).await
    }

    fn mode(&self, asked: &Asked) -> Option<Mode> {
        match self.safe_methods {
            // Nothing in gRPC looks at the method.
            _ if asked.is_grpc() || !asked.method().is_safe() => Some(Mode::Exclusive),
            SafeMethods::Exclusive => Some(Mode::Exclusive),
            SafeMethods::Pass => None,
            SafeMethods::Shared => Some(Mode::Shared),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("locker", &self.locker)
            .field("hold", &self.hold)
            .field("on_disconnect", &self.on_disconnect)
            .field("on_lost", &self.on_lost)
            .field("safe_methods", &self.safe_methods)
            .finish_non_exhaustive()
    }
}
