use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Uri};

/// The head of a request, for the response to it while its handler has the request.
///
/// The example of [`RejectionResponder`](crate::RejectionResponder) reads it.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    method: Method,
    uri: Uri,
    /// What a gRPC client reads.
    grpc: Option<&'static str>,
}

impl RequestInfo {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            grpc: parts.headers.get(CONTENT_TYPE).and_then(grpc),
        }
    }

    /// SlotState for a request that is not known, in answers of handlers.
    #[cfg(feature = "axum")]
    pub(crate) fn nothing() -> Self {
        Self {
            method: Method::default(),
            uri: Uri::default(),
            grpc: None,
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The target, as this layer has seen it.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Whether the request is a call of gRPC or gRPC-Web, by its content type.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// The content type of the answer to a call.
    pub(super) fn grpc_content_type(&self) -> Option<&'static str> {
        self.grpc
    }
}

/// Clients of gRPC-Web look at the content type and would not read a status under that of gRPC. The
/// content type of the request is not echoed: a client can put any text into it.
fn grpc(content_type: &HeaderValue) -> Option<&'static str> {
    let text = content_type.as_bytes().to_ascii_lowercase();
    let rest = text.strip_prefix(b"application/grpc")?;
    let (rest, answer) = [
        (b"-web-text".as_slice(), "application/grpc-web-text+proto"),
        (b"-web", "application/grpc-web+proto"),
        (b"", "application/grpc"),
    ]
    .into_iter()
    .find_map(|(kind, answer)| Some((rest.strip_prefix(kind)?, answer)))?;
    matches!(rest.first(), None | Some(b'+' | b';' | b' ')).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_tell_calls_from_requests() {
        let cases = [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("Application/gRPC;q=1", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web+proto")),
            (
                "application/grpc-web+json",
                Some("application/grpc-web+proto"),
            ),
            (
                "application/grpc-web-text",
                Some("application/grpc-web-text+proto"),
            ),
            ("application/grpcs", None),
            ("application/grpc-webs", None),
            ("application/json", None),
            ("", None),
        ];
        for (sent, answered) in cases {
            assert_eq!(grpc(&HeaderValue::from_static(sent)), answered, "{sent}");
        }
    }
}
