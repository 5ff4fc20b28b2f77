use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, date_time_ymd};
use tempfile::TempDir;

use super::server_process::Site;

/// The certificates of one test, as PEM in a temporary directory: an authority with a server and a
/// client, and an untrusted authority with a client of its own.
#[derive(Clone, Debug)]
pub struct TestCertificates {
    dir: Arc<TempDir>,
}

/// What is wrong with the certificate of a server, if anything.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerCertificate {
    /// It ended in 2001.
    Expired,
    /// For 127.0.0.1 and localhost.
    Valid,
    /// For `elsewhere.invalid`.
    WrongHost,
}

/// What a server asks of clients.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientCertificate {
    /// None.
    Ignored,
    /// One of the authority.
    Required,
}

impl TestCertificates {
    /// Makes keys and certificates.
    #[must_use]
    pub fn new(server: ServerCertificate) -> Self {
        let dir = tempfile::Builder::new().prefix("polylock-").tempdir();
        let files = Self {
            dir: Arc::new(dir.expect("a temporary directory")),
        };
        let authority = files.authority("ca");
        let names = match server {
            ServerCertificate::Expired | ServerCertificate::Valid => ["127.0.0.1", "localhost"],
            ServerCertificate::WrongHost => ["elsewhere.invalid", "elsewhere.example"],
        };
        let mut params = params("server", &names);
        if server == ServerCertificate::Expired {
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        files.member("server", &params, &authority);
        files.member("client", &self::params("client", &[]), &authority);
        let unknown = files.authority("unknown-ca");
        files.member("unknown-client", &self::params("client", &[]), &unknown);
        files
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The certificate of the client.
    pub fn client_certificate(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The key of the client.
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    /// The certificate of an authority that has vouched for none of the others.
    pub fn unknown_ca(&self) -> PathBuf {
        self.file("unknown-ca.pem")
    }

    /// The certificate of a client that only the unknown authority vouches for.
    pub fn unknown_client_certificate(&self) -> PathBuf {
        self.file("unknown-client.pem")
    }

    /// The key of that client.
    pub fn unknown_client_key(&self) -> PathBuf {
        self.file("unknown-client.key")
    }

    /// The certificate of the server.
    pub fn server_certificate(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The key of the server.
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// Copies the files of the server into this part of its directory.
    pub(super) fn give_to(&self, site: &Site<'_>, part: &Path) -> io::Result<()> {
        let certificate = fs::read(self.server_certificate())?;
        site.write(part.join("server.pem"), certificate)?;
        site.write(part.join("server.key"), fs::read(self.server_key())?)
    }

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.self_signed(&key).expect("a certificate");
        self.write(name, &certificate, &key);
        Issuer::new(params, key)
    }

    fn member(&self, name: &str, params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) {
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        self.write(name, &certificate, &key);
    }

    fn write(&self, name: &str, certificate: &Certificate, key: &KeyPair) {
        let certificate = fs::write(self.file(&format!("{name}.pem")), certificate.pem());
        let key = fs::write(self.file(&format!("{name}.key")), key.serialize_pem());
        certificate.and(key).expect("the directory takes files");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn params(common_name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("names of hosts");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(2000, 1, 1);
    params
}
