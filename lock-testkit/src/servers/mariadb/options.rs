use crate::servers::TlsFiles;
use crate::servers::server_process::{Machine, machine_options};

/// How a [`MariaDbServer`](super::MariaDbServer) is set up. By default what is committed survives a
/// [`kill`](crate::servers::ServerProcess::kill) but not a power failure, the character set is `utf8mb4`, and
/// everything else is as MariaDB has it, with less memory.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    pub(super) machine: Machine,
    pub(super) tls: Option<TlsFiles>,
    config: Vec<(String, String)>,
}

machine_options!(MariaDbOptions);

impl MariaDbOptions {
    /// A server without TLS.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable, such as `wait_timeout`, from the start. The last one of a name counts, and
    /// those of the testkit come first.
    #[must_use]
    pub fn with_config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets `innodb_flush_log_at_trx_commit` to 1, or to 2 as it is by default.
    #[must_use]
    pub fn with_durability(self, on: bool) -> Self {
        let value = if on { "1" } else { "2" };
        self.with_config("innodb_flush_log_at_trx_commit", value)
    }

    /// Takes connections by TCP with TLS only.
    #[must_use]
    pub fn with_tls(mut self, files: &TlsFiles) -> Self {
        self.tls = Some(files.clone());
        self
    }

    /// The arguments that these options ask for; names of files are relative to its data.
    pub(super) fn arguments(&self) -> Vec<String> {
        let argument = |name: &str, value: &str| format!("--{name}={value}");
        let mut arguments: Vec<_> = DEFAULTS
            .iter()
            .map(|(name, value)| argument(name, value))
            .collect();
        let address = self.machine.address().to_string();
        arguments.push(argument("bind_address", &address));
        if self.tls.is_some() {
            arguments.extend(TLS.map(|(name, value)| argument(name, value)));
        }
        let own = self.config.iter();
        arguments.extend(own.map(|(name, value)| argument(name, value)));
        arguments
    }
}

const DEFAULTS: [(&str, &str); 7] = [
    ("character_set_server", "utf8mb4"),
    ("innodb_buffer_pool_load_at_startup", "OFF"),
    ("innodb_buffer_pool_size", "32M"),
    ("innodb_flush_log_at_trx_commit", "2"),
    ("innodb_log_file_size", "8M"),
    ("max_connections", "500"),
    ("skip_name_resolve", "ON"),
];

const TLS: [(&str, &str); 3] = [
    ("require_secure_transport", "ON"),
    ("ssl_cert", "server.pem"),
    ("ssl_key", "server.key"),
];
