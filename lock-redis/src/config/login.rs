use std::fmt;
use std::path::PathBuf;

/// A user and a password, which are never shown.
#[derive(Clone, Default, Eq, PartialEq)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

impl Login {
    pub(crate) fn new(username: Option<String>, password: Option<String>) -> Self {
        Self { username, password }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish()
    }
}

/// Which files TLS takes its certificates from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tls {
    /// Certificates of authorities; those of the system if there is none.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}
