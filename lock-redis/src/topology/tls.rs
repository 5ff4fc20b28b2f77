use std::path::Path;
use std::time::Duration;

use polylock_core::TlsFiles;
use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};

use crate::error::{RedisCause, RedisFailure};

/// How servers are verified, and the certificate that they get.
pub(super) async fn certificates(
    tls: &TlsFiles,
    within: Duration,
) -> Result<TlsCertificates, RedisFailure> {
    let tls = tls.clone();
    // A file system that hangs must stop neither the caller nor the thread that renews leases.
    let reading = tokio::task::spawn_blocking(move || read_all(&tls));
    match tokio::time::timeout(within, reading).await {
        Ok(Ok(read)) => read,
        // The second if the runtime ends meanwhile.
        Err(_) | Ok(Err(_)) => Err(RedisCause::TlsFilesTimedOut { within }.into()),
    }
}

fn read_all(tls: &TlsFiles) -> Result<TlsCertificates, RedisFailure> {
    choose_provider();
    let client_tls = match &tls.identity {
        None => None,
        Some((cert, key)) => Some(ClientTlsConfig {
            client_cert: read(cert)?,
            client_key: read(key)?,
        }),
    };
    let root_cert = tls.ca.as_deref().map(read).transpose()?;
    Ok(TlsCertificates {
        client_tls,
        root_cert,
    })
}

pub(super) fn client(
    certificates: &TlsCertificates,
    host: &str,
    port: u16,
    info: ConnectionInfo,
) -> Result<Client, RedisFailure> {
    let address = ConnectionAddr::TcpTls {
        host: host.to_owned(),
        port,
        insecure: false,
        tls_params: None,
    };
    Client::build_with_tls(info.set_addr(address), certificates.clone())
        .map_err(|error| RedisCause::Config(format!("the TLS files are of no use: {error}")).into())
}

fn read(path: &Path) -> Result<Vec<u8>, RedisFailure> {
    std::fs::read(path).map_err(|error| {
        RedisCause::Config(format!("the TLS file {path:?} cannot be read: {error}")).into()
    })
}

/// rustls panics if a program is built with several providers and selects none.
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails if another thread has selected one meanwhile, which is fine.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    }
}
