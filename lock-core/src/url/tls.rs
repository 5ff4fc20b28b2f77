use std::path::PathBuf;

use super::Params;
use crate::error::{Error, Result};

/// Which PEM files TLS takes its certificates from.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsFiles {
    /// Certificates of authorities; `None` for those of the system, where the backend reads them.
    pub ca: Option<PathBuf>,
    /// The certificate of this client with its chain, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Params<'_> {
    /// Reads `tls`, `tls-ca-file`, `tls-cert-file` and `tls-key-file`; `None` without TLS.
    ///
    /// `is_default` says whether TLS is on unless it is turned off.
    ///
    /// # Errors
    ///
    /// A certificate without its key, a key without its certificate, or files without TLS.
    pub fn tls(&mut self, is_default: bool) -> Result<Option<TlsFiles>> {
        let mut file = |name| self.string(name).map(PathBuf::from);
        let ca = file("tls-ca-file");
        let identity = match (file("tls-cert-file"), file("tls-key-file")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(Error::config(
                    "tls-cert-file and tls-key-file belong together",
                ));
            }
        };
        if self.bool("tls")?.unwrap_or(is_default) {
            return Ok(Some(TlsFiles { ca, identity }));
        }
        if ca.is_some() || identity.is_some() {
            return Err(Error::config(
                "there are TLS files without TLS, write tls=on",
            ));
        }
        Ok(None)
    }
}
