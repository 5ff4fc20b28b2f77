use etcd_client::ConnectOptions;
use polylock_core::TlsFiles;

use crate::error::EtcdFailure;

/// Adds the certificate authorities and the client certificate, as they are in the files now.
#[cfg(feature = "tls")]
pub(crate) async fn apply(
    files: &TlsFiles,
    options: ConnectOptions,
) -> Result<ConnectOptions, EtcdFailure> {
    use etcd_client::{Certificate, Identity, TlsOptions};

    let mut tls = match &files.ca {
        Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca).await?)),
        None => TlsOptions::new().with_native_roots(),
    };
    if let Some((cert, key)) = &files.identity {
        tls = tls.identity(Identity::from_pem(read(cert).await?, read(key).await?));
    }
    Ok(options.with_tls(tls))
}

#[cfg(feature = "tls")]
async fn read(path: &std::path::Path) -> Result<Vec<u8>, EtcdFailure> {
    let read = tokio::fs::read(path).await;
    read.map_err(|error| {
        EtcdFailure::Config(format!("the TLS file {path:?} cannot be read: {error}"))
    })
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "it reads files with the feature")]
pub(crate) async fn apply(_: &TlsFiles, _: ConnectOptions) -> Result<ConnectOptions, EtcdFailure> {
    let message = "this program is built without the feature \"tls\" of polylock \
                   (of polylock-etcd, if used alone)";
    Err(EtcdFailure::Config(message.to_owned()))
}
