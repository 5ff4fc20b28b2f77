//! Options of every command.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use secrecy::{ExposeSecret as _, SecretString};

use super::value::{namespace, secret};

/// Options that every command takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct GlobalArgs {
    /// Lock service, for example sqlite:/var/lib/locks.db [default: a SQLite file of this user]
    #[arg(
        long,
        value_name = "URL",
        env = "LOCK_URL",
        hide_env_values = true,
        global = true,
        value_parser = secret
    )]
    pub(crate) backend: Option<SecretString>,
    // The option wins over a file and the variable does not, even if both say the same.
    #[arg(skip)]
    pub(crate) is_backend_option: bool,
    /// File that says which backends and classes of locks there are; not read with --backend
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCK_CONFIG",
        hide_env_values = true,
        global = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) config: Option<PathBuf>,
    // An empty option is an error; an empty variable may not be.
    #[arg(skip)]
    pub(crate) is_config_option: bool,
    /// Backend of the file, in place of LOCK_DEFAULT_BACKEND and of its default
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) default_backend: Option<String>,
    /// Class of locks of the file: its backend, ttl and wait, and what it requires
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) class: Option<String>,
    /// Put NS in front of every key, so that services on one backend do not contend
    #[arg(long, value_name = "NS", global = true, value_parser = namespace)]
    pub(crate) namespace: Option<String>,
    /// Say more: -v shows what the library does, -vv every step
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Say less: -q leaves errors alone, -qq says nothing
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: u8,
    /// Form of the answers on standard output
    #[arg(long, value_enum, default_value_t, global = true)]
    pub(crate) format: OutputFormat,
    /// When to color messages
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, global = true)]
    pub(crate) color: Color,
}

impl GlobalArgs {
    /// The URL of `--backend` or `LOCK_URL`, with its password.
    pub(crate) fn url(&self) -> Option<&str> {
        self.backend.as_ref().map(|url| url.expose_secret())
    }
}

/// How answers look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Documented JSON, one value or one line for each event
    Json,
    /// For people
    #[default]
    Text,
}

/// When messages are colored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Color {
    /// Always
    Always,
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Never
    Never,
}
