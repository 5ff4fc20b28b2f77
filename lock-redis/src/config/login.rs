use std::fmt;

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
