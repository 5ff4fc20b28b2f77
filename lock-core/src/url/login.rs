use super::Params;
use crate::credentials::{Login, LoginSource, PasswordFile};
use crate::error::{Error, Result};

impl Params<'_> {
    /// Makes a login of a user, a password and the parameter that names a file with the password.
    ///
    /// # Errors
    ///
    /// A password and a file with one.
    pub fn login(
        &mut self,
        username: Option<&str>,
        password: Option<&str>,
        file: &'static str,
    ) -> Result<LoginSource> {
        let Some(path) = self.string(file) else {
            let mut login = Login::new();
            if let Some(username) = username {
                login = login.with_username(username);
            }
            if let Some(password) = password {
                login = login.with_password(password);
            }
            return Ok(login.into());
        };
        if password.is_some() {
            return Err(Error::config(format!(
                "there is a password, and {file} names a file with one: leave one of them out"
            )));
        }
        let mut credentials = PasswordFile::new(path);
        if let Some(username) = username {
            credentials = credentials.with_username(username);
        }
        Ok(LoginSource::credentials(credentials))
    }
}
