/// How a [`RedisServer`](super::RedisServer) is set up. By default it persists nothing and asks
/// for no password.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    lines: Vec<String>,
    secured: bool,
    sentinel: bool,
    files: Vec<(&'static str, String)>,
}

impl RedisOptions {
    /// A server that persists nothing and asks for no password.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line to its configuration, after those that the testkit writes; the value as in
    /// `redis.conf`, where spaces separate words.
    #[must_use]
    pub fn with_config(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Asks clients for this password.
    #[must_use]
    pub fn with_password(self, password: &str) -> Self {
        self.secure().with_config("requirepass", password)
    }

    /// Adds a user by the rules of `ACL SETUSER`, for example `on >secret ~lock:* +@all`.
    #[must_use]
    pub fn with_user(self, name: &str, rules: &str) -> Self {
        self.secure()
            .with_config("user", &format!("{name} {rules}"))
    }

    /// Lets the testkit in, whatever the users may do.
    fn secure(mut self) -> Self {
        if !self.secured {
            self.secured = true;
            self = self.with_config("user", &format!("{ADMIN} on nopass ~* &* +@all"));
        }
        self
    }

    /// A Sentinel.
    pub(super) fn sentinel() -> Self {
        Self {
            sentinel: true,
            ..Self::default()
        }
    }

    /// Puts a file into its directory before it starts for the first time.
    pub(super) fn with_file(mut self, name: &'static str, content: String) -> Self {
        self.files.push((name, content));
        self
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.sentinel
    }

    pub(super) fn files(&self) -> &[(&'static str, String)] {
        &self.files
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }

    pub(super) fn is_secured(&self) -> bool {
        self.secured
    }
}

/// The user that the testkit itself is where users are needed.
pub(super) const ADMIN: &str = "testkit";
