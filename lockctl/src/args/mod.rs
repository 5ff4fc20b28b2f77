//! The command line.

mod global;
mod value;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use polylock::LockUrl;

pub(crate) use self::global::{Color, GlobalArgs, OutputFormat};
use self::value::is_lease;
pub(crate) use self::value::{
    EventsTarget, LeaseText, address, duration, note, once_key, period, permits, secret, signal,
    wait,
};
#[cfg(feature = "bench")]
use crate::commands::BenchArgs;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::commands::SchemaArgs;
use crate::commands::{
    AcquireArgs, BreakArgs, CompletionsArgs, ConfigArgs, DoctorArgs, KeyArgs, LeadArgs, LeaderArgs,
    PatternArgs, ReleaseArgs, RenewArgs, RunArgs, TopArgs,
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

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Run(RunArgs),
    Lead(LeadArgs),
    Leader(LeaderArgs),
    /// Check whether a lock is free: exit 0 if it is, 75 if it is held
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

/// Hides URLs, which may have a password, and ids of leases in what an error repeats of the command line.
pub(crate) fn without_secrets(mut error: clap::Error) -> clap::Error {
    let kinds = [
        ContextKind::InvalidArg,
        ContextKind::InvalidSubcommand,
        ContextKind::InvalidValue,
    ];
    let of_lease = text_of(&error, ContextKind::InvalidArg).starts_with("--lease");
    for kind in kinds {
        let text = &text_of(&error, kind).to_owned();
        let is_url = text.contains('@') || LockUrl::may_be_url(text);
        if is_url || is_lease(text) || of_lease && kind == ContextKind::InvalidValue {
            error.insert(kind, ContextValue::String("***".to_owned()));
            // It repeats the text.
            error.remove(ContextKind::Suggested);
            if LockUrl::may_be_url(text) && kind != ContextKind::InvalidValue {
                let tip = "the URL of a lock service is given by --backend URL".into();
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
        }
    }
    error
}

fn text_of(error: &clap::Error, kind: ContextKind) -> &str {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text,
        _ => "",
    }
}

/// Names the variable or the argument that is not UTF-8. Its text may be a secret.
pub(crate) fn with_culprit(
    error: clap::Error,
    line: impl Iterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> clap::Error {
    if error.kind() != ErrorKind::InvalidUtf8 {
        return error;
    }
    // A command may be anything.
    let line: Vec<_> = line.take_while(|word| word != "--").collect();
    let is_given = |option: &str| {
        let mut words = line.iter();
        words.any(|word| word.to_string_lossy().starts_with(option))
    };
    let is_wrong = |(name, option): (&str, &str)| {
        !is_given(option) && env(name).is_some_and(|value| value.to_str().is_none())
    };
    let variables = [("LOCK_URL", "--backend"), ("LOCK_LEASE", "--lease")];
    let culprit = match variables.into_iter().find(|known| is_wrong(*known)) {
        Some((name, _)) => format!("the variable {name}"),
        None => match line.iter().position(|word| word.to_str().is_none()) {
            Some(at) => format!("argument {at}"),
            None => return error,
        },
    };
    clap::Error::raw(ErrorKind::InvalidUtf8, format!("{culprit} is not UTF-8\n"))
}

/// Says how a command is told from keys to those who are used to flock(1).
pub(crate) fn with_tip(
    mut error: clap::Error,
    line: impl Iterator<Item = OsString>,
) -> clap::Error {
    let line: Vec<_> = line.collect();
    let command = line.iter().find_map(|word| match word.to_str() {
        Some("run") => Some(("run", "KEY")),
        Some("lead") => Some(("lead", "NAME")),
        _ => None,
    });
    let Some((command, key)) = command else {
        return error;
    };
    let is_misspelt = error.get(ContextKind::SuggestedArg).is_some();
    let begins_with_hyphen = text_of(&error, ContextKind::InvalidArg).starts_with('-');
    let has_tip = error.get(ContextKind::Suggested).is_some();
    let tip = match error.kind() {
        // Behind -- is no key but the command, which is what clap suggests.
        ErrorKind::UnknownArgument if begins_with_hyphen && !is_misspelt => {
            format!("a {key} of `lockctl {command}` does not begin with -")
        }
        _ if has_tip => return error,
        // Its second word is one too many.
        ErrorKind::UnknownArgument if line.iter().any(|word| word == "--") => return error,
        ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument => {
            format!("the command stands behind --, as in `lockctl {command} {key} -- CMD ARGS`")
        }
        _ => return error,
    };
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
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
    fn the_command_line_is_shown_without_the_passwords_of_its_urls() {
        const URL: &str = "redis://app:s3ntinel@cache";
        let lines: &[&[&str]] = &[
            &["lockctl", "--backend", URL, "list"],
            &["lockctl", "doctor", URL],
            #[cfg(feature = "bench")]
            &["lockctl", "bench", URL],
            #[cfg(feature = "bench")]
            &[
                "lockctl",
                "bench",
                "--target",
                "cache=redis://app:s3ntinel@cache",
            ],
        ];
        for line in lines {
            let shown = format!("{:?}", Cli::read(*line).unwrap());
            assert!(!shown.contains("s3ntinel"), "{shown}");
        }
    }
}
