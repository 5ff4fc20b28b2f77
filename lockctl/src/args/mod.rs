//! The command line.

mod value;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use self::value::{
    EventsTarget, LeaseText, address, duration, note, once_key, period, permits, signal,
};
#[cfg(feature = "bench")]
use crate::commands::BenchArgs;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::commands::SchemaArgs;
use crate::commands::{
    AcquireArgs, BreakArgs, CompletionsArgs, ConfigArgs, DoctorArgs, LeadArgs, LeaderArgs,
    ReleaseArgs, RenewArgs, RunArgs, TopArgs,
};

/// Runs commands under a lock that others respect, and shows and breaks locks.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl Cli {
    /// Reads the command line, and keeps whether `--backend` and `--config` or their variables were
    /// given.
    pub(crate) fn read(
        line: impl IntoIterator<Item: Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let mut matches = with_negative_durations(Self::command()).try_get_matches_from(line)?;
        let is_option = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let (is_backend_option, is_config_option) = (is_option("backend"), is_option("config"));
        let cli = Self::from_arg_matches_mut(&mut matches);
        let mut cli = cli.map_err(|error| error.format(&mut Self::command()))?;
        cli.global.is_backend_option = is_backend_option;
        cli.global.is_config_option = is_config_option;
        Ok(cli)
    }
}

/// Lets durations begin with a hyphen: they are refused as negative, and not as unknown options.
fn with_negative_durations(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        match names.iter().any(|name| name.as_str() == "DURATION") {
            true => arg.allow_hyphen_values(true),
            false => arg,
        }
    });
    command.mut_subcommands(with_negative_durations)
}

const EXIT_CODES: &str = "\
Exit codes: that of the command; 128+n if signal n killed it; 75 not acquired; 79 lock lost;
69 backend unavailable; 64 usage; 65 something else than a lock is stored there;
78 configuration; 77 denied; 70 internal error; 126 command not executable; 127 command not found.";

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
        global = true
    )]
    pub(crate) backend: Option<String>,
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
    /// Put NS in front of every key, so that services on one backend do not meet
    #[arg(long, value_name = "NS", global = true)]
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

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Run(RunArgs),
    Lead(LeadArgs),
    Leader(LeaderArgs),
    /// Tell whether a lock is free: exit 0 if it is, 75 if it is held
    Try(KeyArgs),
    /// List the locks that are held
    List(PatternArgs),
    /// Show one lock in full
    Inspect(KeyArgs),
    Top(TopArgs),
    /// Print locks as they are acquired and become free, until interrupted
    Watch(PatternArgs),
    Break(BreakArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    Schema(SchemaArgs),
    Doctor(DoctorArgs),
    #[cfg(feature = "bench")]
    Bench(BenchArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

/// Argument of `try` and `inspect`.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Name of the lock
    pub(crate) key: String,
}

/// Options of `list` and `watch`.
#[derive(Args, Debug)]
pub(crate) struct PatternArgs {
    /// Beginning of the keys, or a pattern in which * stands for any text
    #[arg(default_value = "")]
    pub(crate) pattern: String,
}

/// Says how a command is told from keys to those who are used to flock(1).
pub(crate) fn with_tip(
    mut error: clap::Error,
    line: impl Iterator<Item = OsString>,
) -> clap::Error {
    let line: Vec<_> = line.collect();
    let is_missing = match error.kind() {
        ErrorKind::MissingRequiredArgument => true,
        // Its second word is one too many.
        ErrorKind::UnknownArgument => !line.iter().any(|word| word == "--"),
        _ => false,
    };
    if !is_missing || error.get(ContextKind::Suggested).is_some() {
        return error;
    }
    let example = line.iter().find_map(|word| match word.to_str() {
        Some("run") => Some("lockctl run KEY -- CMD ARGS"),
        Some("lead") => Some("lockctl lead NAME -- CMD ARGS"),
        _ => None,
    });
    if let Some(example) = example {
        let tip = format!("the command stands behind --, as in `{example}`").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        with_negative_durations(Cli::command()).debug_assert();
    }

    #[test]
    fn the_backend_is_known_to_be_an_option_wherever_it_stands() {
        let is_option = |line: &[&str]| Cli::read(line).unwrap().global.is_backend_option;
        assert!(is_option(&["lockctl", "--backend", "memory:", "list"]));
        assert!(is_option(&["lockctl", "list", "--backend", "memory:"]));
        assert!(!is_option(&["lockctl", "list"]));
    }

    #[test]
    fn several_keys_and_a_command_with_options_of_its_own() {
        let line = [
            "lockctl", "run", "a", "b", "-n", "--", "ls", "-l", "--", "x",
        ];
        let CliCommand::Run(run) = Cli::parse_from(line).command else {
            panic!("not run")
        };
        assert_eq!(run.keys, ["a", "b"]);
        assert_eq!(run.command.words(), ["ls", "-l", "--", "x"]);
    }
}
