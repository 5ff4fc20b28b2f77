use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;

use crate::keys::{KeyError, NameOrigin, header_value};

/// Which clients share idempotency keys.
///
/// A client chooses the key, and any client that sends the same key with the same request gets the stored
/// response. Keys that are equal by chance, or because a client guessed one, matter only within one scope.
///
/// The example of [`IdempotencyLayer`](super::IdempotencyLayer) has one for each client.
#[derive(Clone)]
pub struct KeyScope {
    /// `None`: all clients share one scope.
    client: Option<Arc<OfClient>>,
}

type OfClient = dyn Fn(&Parts) -> Result<String, KeyError> + Send + Sync;

impl KeyScope {
    /// Gives each client its own keys: equal keys of two clients are different keys.
    ///
    /// `client` returns the tenant or the principal of a request, which must be authenticated, unlike a
    /// header that clients send. An error rejects the request, and so does an empty name, which all clients
    /// without a name would share.
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

    /// The prefix for the key of a request.
    pub(super) fn of(&self, parts: &Parts) -> Result<String, KeyError> {
        let Some(client) = &self.client else {
            return Ok(String::new());
        };
        let name = client(parts)?;
        if name.is_empty() {
            let message = "the scope of a client is empty";
            return Err(KeyError::Misconfigured(message.to_owned()));
        }
        Ok(name)
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

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_LEN: usize = 255;

/// The value of `Idempotency-Key`: a string in double quotes (RFC 8941, 3.3.3), as the draft has it,
/// or the same without quotes, as most clients send it. `"8e03"` and `8e03` are one key. An empty key is
/// invalid, not missing, because its client expects protection.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<String, KeyError> {
    let origin = NameOrigin::new("header", IDEMPOTENCY_KEY.as_str());
    let text = match header_value(headers, &IDEMPOTENCY_KEY) {
        Err(KeyError::Missing(_)) if headers.contains_key(&IDEMPOTENCY_KEY) => "",
        text => text?,
    };
    let key = match text.strip_prefix('"') {
        Some(rest) => quoted(rest),
        None => bare(text),
    };
    match key {
        Some(key) if key.is_empty() => Err(origin.invalid("is empty")),
        Some(key) if key.len() > MAX_KEY_LEN => {
            Err(origin.invalid(&format!("has more than {MAX_KEY_LEN} characters")))
        }
        Some(key) => Ok(key),
        None => Err(origin.invalid("is neither a string in double quotes nor a plain token")),
    }
}

/// The text before the closing quote, which must end the value.
fn quoted(text: &str) -> Option<String> {
    let mut key = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return chars.as_str().is_empty().then_some(key),
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c @ ' '..='~' => key.push(c),
            _ => return None,
        }
    }
}

fn bare(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ',' | ';');
    text.chars().all(plain).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key(sent: &str) -> Result<String, KeyError> {
        let sent = HeaderValue::from_str(sent).expect("a value of a header");
        idempotency_key(&HeaderMap::from_iter([(IDEMPOTENCY_KEY.clone(), sent)]))
    }

    #[test]
    fn it_is_a_string_or_a_plain_token() {
        const UUID: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
        let longest = "x".repeat(255);
        for (sent, expected) in [
            (UUID, UUID),
            ("\"8e03978e\"", "8e03978e"),
            ("dGVzdA+/==", "dGVzdA+/=="),
            ("\"a b, c; d\"", "a b, c; d"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (longest.as_str(), longest.as_str()),
            (&format!("\"{longest}\""), &longest),
        ] {
            assert_eq!(key(sent).unwrap(), expected, "{sent}");
        }
    }

    /// What no header may have at all is refused in `keys`.
    #[test]
    fn anything_else_is_invalid() {
        let spelled = r#"a b|a,b|a, a|"a", "a"|"a";v=1|a;v=1|"a|a"|"a"b|"a\b"|"a\|a\b|'a b'"#;
        let spelled = spelled.split('|').map(str::to_owned);
        let long = [256, 1 << 20].map(|length| "x".repeat(length));
        let quoted = ["x".repeat(256), String::new()].map(|key| format!("\"{key}\""));
        let others = long.into_iter().chain(quoted).chain([String::new()]);
        for sent in spelled.chain(others) {
            let refused = key(&sent);
            let is_invalid = matches!(refused, Err(KeyError::Invalid(_)));
            assert!(is_invalid, "{sent}: {refused:?}");
        }
        let absent = idempotency_key(&HeaderMap::new());
        assert!(matches!(absent, Err(KeyError::Missing(_))), "{absent:?}");
    }
}
