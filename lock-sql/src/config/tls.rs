use std::path::PathBuf;

use lock_core::{Params, Result};

use super::server::wrong;

/// Which files TLS takes its certificates from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tls {
    /// Certificates of authorities, besides those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// Reads what a URL says of TLS.
pub(super) fn read(params: &mut Params<'_>) -> Result<Option<Tls>> {
    let ca = params.string("tls-ca-file");
    let cert = params.string("tls-cert-file");
    let key = params.string("tls-key-file");
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        _ => return Err(wrong("tls-cert-file and tls-key-file belong together")),
    };
    if params.bool("tls")? == Some(true) {
        let ca = ca.map(Into::into);
        return Ok(Some(Tls { ca, identity }));
    }
    if ca.is_some() || identity.is_some() {
        return Err(wrong("there are TLS files without TLS, write tls=on"));
    }
    Ok(None)
}
