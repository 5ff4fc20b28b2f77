#[cfg(feature = "tls")]
pub(crate) use self::rustls::ZkCertificates;
#[cfg(not(feature = "tls"))]
pub(crate) use self::without::ZkCertificates;

#[cfg(feature = "tls")]
mod rustls {
    use std::fmt::Display;
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::sync::Arc;

    use polylock_core::TlsFiles;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    use zookeeper_client::{Client, Connector, TlsOptions};

    use crate::config::ZooKeeperConfig;
    use crate::error::ZkFailure;

    /// The certificate authorities that verify servers, and the client certificate.
    #[derive(Clone, Debug)]
    pub(crate) struct ZkCertificates {
        /// `None` keeps the options of the application's connector.
        options: Option<TlsOptions>,
        /// The same, for connections outside the client.
        probe: Option<Arc<ClientConfig>>,
    }

    impl ZkCertificates {
        pub(crate) async fn read(
            tls: &TlsFiles,
            config: &ZooKeeperConfig,
        ) -> Result<Self, ZkFailure> {
            choose_provider();
            for (host, _) in &config.hosts {
                // The client would panic.
                ServerName::try_from(host.as_str()).map_err(|_| {
                    wrong(format!("{host:?} is no name that a certificate can have"))
                })?;
            }
            if let Some(connector) = &config.connector
                && *tls == TlsFiles::default()
            {
                if !connector.has_tls() {
                    return Err(wrong(
                        "the connector has no TLS options, and there is no file of authorities",
                    ));
                }
                return Ok(Self {
                    options: None,
                    probe: None,
                });
            }
            let Some(ca) = &tls.ca else {
                return Err(wrong(
                    "TLS needs authorities to verify servers by: name the file of those with \
                     tls-ca-file, such as /etc/ssl/certs/ca-certificates.crt",
                ));
            };
            let ca = read(ca).await?;
            let identity = match &tls.identity {
                None => None,
                Some((cert, key)) => Some((read(cert).await?, read(key).await?)),
            };
            let mut options = TlsOptions::new().with_pem_ca(&ca).map_err(useless)?;
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(&ca)?);
            let probe = ClientConfig::builder().with_root_certificates(roots);
            let probe = match identity {
                None => probe.with_no_client_auth(),
                Some((cert, key)) => {
                    options = options.with_pem_identity(&cert, &key).map_err(useless)?;
                    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(useless)?;
                    let chain = certificates(&cert)?;
                    probe.with_client_auth_cert(chain, key).map_err(useless)?
                }
            };
            Ok(Self {
                options: Some(options),
                probe: Some(Arc::new(probe)),
            })
        }

        pub(crate) async fn connect(
            &self,
            mut connector: Connector,
            servers: &str,
        ) -> Result<Client, ZkFailure> {
            if let Some(options) = &self.options {
                connector = connector.with_tls(options.clone());
            }
            Ok(connector.secure_connect(servers).await?)
        }

        /// Wraps one of our own connections in TLS; it blocks.
        pub(crate) fn dress(
            &self,
            host: &str,
            stream: TcpStream,
        ) -> io::Result<impl Read + Write + use<>> {
            let Some(options) = &self.probe else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let connection = ClientConnection::new(Arc::clone(options), name);
            let connection = connection.map_err(io::Error::other)?;
            Ok(StreamOwned::new(connection, stream))
        }
    }

    fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, ZkFailure> {
        let all: Result<_, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        all.map_err(useless)
    }

    async fn read(path: &Path) -> Result<String, ZkFailure> {
        // A file system that hangs must not stop the thread that renews leases.
        let text = tokio::fs::read_to_string(path).await;
        text.map_err(|error| wrong(format!("the TLS file {path:?} cannot be read: {error}")))
    }

    fn useless(error: impl Display) -> ZkFailure {
        wrong(format!("the TLS files are of no use: {error}"))
    }

    fn wrong(message: impl Into<String>) -> ZkFailure {
        ZkFailure::Config(message.into())
    }

    /// rustls panics where a program is built with several providers and has chosen none.
    fn choose_provider() {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails if another thread has chosen one meanwhile, which is as good.
            drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        }
    }
}

#[cfg(not(feature = "tls"))]
mod without {
    use std::io;
    use std::net::TcpStream;

    use polylock_core::TlsFiles;
    use zookeeper_client::{Client, Connector};

    use crate::config::ZooKeeperConfig;
    use crate::error::ZkFailure;

    /// There are none without the feature.
    #[derive(Clone, Debug)]
    pub(crate) enum ZkCertificates {}

    impl ZkCertificates {
        #[expect(clippy::unused_async, reason = "it reads files with the feature")]
        pub(crate) async fn read(_: &TlsFiles, _: &ZooKeeperConfig) -> Result<Self, ZkFailure> {
            let message = "this program is built without the feature \"tls\" of polylock \
                           (of polylock-zk, if used alone)";
            Err(ZkFailure::Config(message.to_owned()))
        }

        #[expect(clippy::unused_async, reason = "it awaits with the feature")]
        pub(crate) async fn connect(&self, _: Connector, _: &str) -> Result<Client, ZkFailure> {
            match *self {}
        }

        pub(crate) fn dress(&self, _: &str, _: TcpStream) -> io::Result<TcpStream> {
            match *self {}
        }
    }
}
