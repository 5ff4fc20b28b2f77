use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Uri};

/// What is kept of a request while its handler has it, for the answer to it.
#[derive(Clone, Debug)]
pub struct Asked {
    method: Method,
    uri: Uri,
    grpc: bool,
}

impl Asked {
    pub(crate) fn of(parts: &Parts) -> Self {
        let content_type = parts.headers.get(CONTENT_TYPE);
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            grpc: content_type.is_some_and(|value| value.as_bytes().starts_with(GRPC)),
        }
    }

    /// Stands for a request that is not known, in answers of handlers.
    #[cfg(feature = "axum")]
    pub(crate) fn nothing() -> Self {
        Self {
            method: Method::default(),
            uri: Uri::default(),
            grpc: false,
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

    /// Whether the request is a gRPC call, by its content type.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.grpc
    }
}

const GRPC: &[u8] = b"application/grpc";
