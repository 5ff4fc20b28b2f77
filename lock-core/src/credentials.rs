use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::secret::Secret;

/// Supplies the user and the password each time a connection is opened.
///
/// For passwords that change while the program runs, such as rotated secrets and cloud tokens. Open
/// connections keep their login. The next connection, after a failover or a broken connection, uses the new
/// one, and no lock is lost in between.
///
/// # Examples
///
/// ```
/// use async_trait::async_trait;
/// use polylock_core::{Credentials, Login, Result};
///
/// #[derive(Debug)]
/// struct CloudToken;
///
/// #[async_trait]
/// impl Credentials for CloudToken {
///     async fn login(&self) -> Result<Login> {
///         // Without blocking the thread, and in less than the connect timeout.
///         let token = "from the cloud, or from a cache";
///         Ok(Login::new().with_username("locks").with_password(token))
///     }
/// }
/// ```
#[async_trait]
pub trait Credentials: fmt::Debug + Send + Sync + 'static {
    /// The login for a connection that is opened now.
    ///
    /// The time that it takes is part of the timeout for the connection. The future may be polled on the thread that
    /// renews all leases of the process, and must not block it: no lease is renewed meanwhile, and the timeout cannot
    /// end a call that blocks. Make such a call in `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    ///
    /// Any; the connection is not opened then, and the call that needs it is
    /// [`Unavailable`](ErrorKind::Unavailable).
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the timeout is over.
    async fn login(&self) -> Result<Login>;
}

/// A user and a password. `Debug` does not show the password. It is overwritten in memory when the login is
/// dropped, as far as safe code can.
///
/// The example of [`Credentials`] makes one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
}

impl Login {
    /// Neither a user nor a password.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the user.
    #[must_use]
    pub fn with_username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// Sets the password.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into().into());
        self
    }

    /// The user.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// The password in clear text: for the driver, and for nothing that prints.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::expose)
    }
}

/// A password that is read from a file for each connection; a line break at its end is left out.
///
/// For secrets that are mounted as files, as Kubernetes and Docker do.
///
/// # Cancel safety
///
/// The file is read on a thread of its own. If the login is dropped, the read goes on to its end and
/// its result is not used.
///
/// # Examples
///
/// ```
/// use polylock_core::{Credentials, PasswordFile};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let name = format!("polylock-password-{}", std::process::id());
/// # let path = std::env::temp_dir().join(name);
/// std::fs::write(&path, "s3cret\n")?; // what Kubernetes mounts into the container
///
/// // For `with_credentials` of a configuration, which reads it for each connection.
/// let password = PasswordFile::new(&path).with_username("orders");
/// let login = password.login().await?;
/// assert_eq!(login.username(), Some("orders"));
/// assert_eq!(login.password(), Some("s3cret"));
/// # std::fs::remove_file(&path)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PasswordFile {
    pub(crate) username: Option<String>,
    pub(crate) path: PathBuf,
}

impl PasswordFile {
    /// The password of the default user.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            username: None,
            path: path.into(),
        }
    }

    /// Sets the user.
    #[must_use]
    pub fn with_username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }
}

#[async_trait]
impl Credentials for PasswordFile {
    async fn login(&self) -> Result<Login> {
        let path = self.path.clone();
        // A file system that hangs must not stop the thread that renews leases.
        let read = move || std::fs::read_to_string(path).map(Secret::from);
        let read = tokio::task::spawn_blocking(read);
        let text = read.await.map_err(|error| self.unreadable(error))?;
        let text = text.map_err(|error| self.unreadable(error))?;
        let text = text.expose();
        let password = text.strip_suffix('\n').unwrap_or(text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(self.unreadable("it is empty"));
        }
        Ok(Login {
            username: self.username.clone(),
            password: Some(password.to_owned().into()),
        })
    }
}

impl PasswordFile {
    fn unreadable(&self, why: impl fmt::Display) -> Error {
        let message = format!("the password file {:?} cannot be read: {why}", self.path);
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// Where a backend takes the login of a connection from: one that is known, or [`Credentials`]. For
/// backends.
#[derive(Clone, Debug)]
pub struct LoginSource(CredentialSource);

#[derive(Clone, Debug)]
enum CredentialSource {
    Credentials(Arc<dyn Credentials>),
    Known(Login),
}

impl LoginSource {
    /// Asks for the login of each connection.
    #[must_use]
    pub fn credentials(credentials: impl Credentials) -> Self {
        Self(CredentialSource::Credentials(Arc::new(credentials)))
    }

    /// The login, if it is known before a connection is opened.
    #[must_use]
    pub fn known(&self) -> Option<&Login> {
        match &self.0 {
            CredentialSource::Credentials(_) => None,
            CredentialSource::Known(login) => Some(login),
        }
    }

    /// The login for a connection that is opened now.
    ///
    /// # Errors
    ///
    /// Those of [`Credentials::login`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn login(&self) -> Result<Login> {
        match &self.0 {
            CredentialSource::Credentials(credentials) => credentials.login().await,
            CredentialSource::Known(login) => Ok(login.clone()),
        }
    }
}

impl Default for LoginSource {
    fn default() -> Self {
        Login::default().into()
    }
}

impl From<Login> for LoginSource {
    fn from(login: Login) -> Self {
        Self(CredentialSource::Known(login))
    }
}
