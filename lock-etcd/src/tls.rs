#[cfg(feature = "tls")]
mod with {
    use std::path::PathBuf;

    use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
    use polylock_core::TlsFiles;

    use crate::error::Failure;

    /// Adds the certificate authorities and the client certificate, as they are in the files now.
    pub(crate) async fn apply(
        files: Option<&TlsFiles>,
        options: ConnectOptions,
    ) -> Result<ConnectOptions, Failure> {
        let Some(files) = files else {
            return Ok(options);
        };
        let mut tls = match &files.ca {
            Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca).await?)),
            None => TlsOptions::new().with_native_roots(),
        };
        if let Some((cert, key)) = &files.identity {
            tls = tls.identity(Identity::from_pem(read(cert).await?, read(key).await?));
        }
        Ok(options.with_tls(tls))
    }

    async fn read(path: &PathBuf) -> Result<Vec<u8>, Failure> {
        let read = tokio::fs::read(path).await;
        read.map_err(|error| {
            Failure::Config(format!("the TLS file {path:?} cannot be read: {error}"))
        })
    }
}

#[cfg(not(feature = "tls"))]
mod without {
    use etcd_client::ConnectOptions;
    use polylock_core::TlsFiles;

    use crate::error::Failure;

    pub(crate) async fn apply(
        files: Option<&TlsFiles>,
        options: ConnectOptions,
    ) -> Result<ConnectOptions, Failure> {
        match files {
            None => Ok(options),
            Some(_) => {
                let message = "this program is built without the feature \"tls\" of polylock-etcd";
                Err(Failure::Config(message.to_owned()))
            }
        }
    }
}

#[cfg(feature = "tls")]
pub(crate) use self::with::apply;
#[cfg(not(feature = "tls"))]
pub(crate) use self::without::apply;
