use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::keys::KeyError;

/// Which clients share idempotency keys.
///
/// A client chooses the key, and any client that sends the same key with the same request gets the
/// stored response. Two clients that happen to choose one key, or one that guesses the key of the
/// other, meet only within a scope.
///
/// Of the two kinds, [`IdempotencyLayer`](super::IdempotencyLayer) has an example for each client, and
/// [`MemoryResponses`](super::MemoryResponses) one that is shared.
#[derive(Clone)]
pub struct KeyScope {
    /// All clients share one scope without it.
    client: Option<Arc<OfClient>>,
}

type OfClient = dyn Fn(&Parts) -> Result<String, KeyError> + Send + Sync;

impl KeyScope {
    /// Each client has keys of its own: keys of two clients never meet.
    ///
    /// `client` names the tenant or the principal of a request, which must be authenticated: a header
    /// that clients send is not. An error refuses the request, and so does an empty name, which would
    /// be that of all clients without one.
    #[must_use]
    pub fn per_client(
        client: impl Fn(&Parts) -> Result<String, KeyError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            client: Some(Arc::new(client)),
        }
    }

    /// All clients share one scope: any client that knows a key and its request gets the stored
    /// response.
    ///
    /// For services with one client, or with clients that trust each other and choose keys that
    /// cannot collide, such as random UUIDs.
    #[must_use]
    pub fn shared() -> Self {
        Self { client: None }
    }

    /// What goes before the key of a request.
    pub(super) fn of(&self, parts: &Parts) -> Result<String, KeyError> {
        let Some(client) = &self.client else {
            return Ok(String::new());
        };
        match client(parts)? {
            name if name.is_empty() => {
                let message = "the scope of a client is empty";
                Err(KeyError::Misconfigured(message.to_owned()))
            }
            name => Ok(name),
        }
    }
}

impl fmt::Debug for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.client {
            Some(_) => "PerClient(..)",
            None => "Shared",
        })
    }
}
