//! Injects faults into real servers while client processes compete for locks, and judges the
//! history.

mod backend;
mod candidate;
mod client;
mod clients;
mod exceptions;
mod faults;
mod fleet;
mod judge;
mod register;
mod report;
mod run;
mod schedule;
mod world;

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use polylock_core::engine::{Entropy, OsEntropy};

use self::backend::BackendKind;
use self::client::ClientOptions;
use self::run::NemesisRun;

/// Injects faults into real servers while six client processes compete for three locks and one lead, and judges
/// what happened. Ends with 1 if two clients held a lock at once where docs/guarantees.md says that
/// they do not, if a token did not grow, if a lock did not recover, or if the election had no leader for
/// too long.
#[derive(Debug, Parser)]
#[command(name = "nemesis", args_conflicts_with_subcommands = true)]
struct NemesisOptions {
    #[command(subcommand)]
    command: Option<Internal>,

    /// The backends, one after the other; all without any.
    backends: Vec<BackendKind>,

    /// How long each run takes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,

    /// Repeats the schedule of another run; drawn at random by default.
    #[arg(long, env = "NEMESIS_SEED")]
    seed: Option<u64>,

    /// Switches one safety rule off in the clients; needs the feature `mutants`.
    #[arg(long, requires = "backends")]
    mutant: Option<String>,

    /// Draws from these faults alone.
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,

    /// Prints the faults of each backend.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Internal {
    /// A client process of a run.
    #[command(hide = true)]
    Client(ClientOptions),
}

fn main() -> ExitCode {
    let options = NemesisOptions::parse();
    let outcome = match &options.command {
        Some(Internal::Client(client)) => client::run(client).map(|()| 0),
        None if options.list || env::var_os(ON_OWN_DISK).is_some() => run_all(&options),
        None => Err(run_on_own_disk()),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            // There is no other way to report an error of this.
            drop(writeln!(io::stderr(), "nemesis: {error}"));
            ExitCode::from(2)
        }
    }
}

/// Becomes a nemesis whose servers are on a file system of its own, so that it can be full. It goes with
/// the last process that sees it.
fn run_on_own_disk() -> io::Error {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", OWN_DISK])
        .arg(env::temp_dir())
        .arg(program)
        .args(env::args_os().skip(1))
        .env(ON_OWN_DISK, "");
    command.exec()
}

const OWN_DISK: &str = r#"
set -e
export LOCK_TESTKIT_DIR=$0/polylock-disk-0
mkdir -p "$LOCK_TESTKIT_DIR"
mount -t tmpfs -o size=800m,mode=1777 tmpfs "$LOCK_TESTKIT_DIR"
exec "$@"
"#;
const ON_OWN_DISK: &str = "NEMESIS_DISK";

/// Returns the number of violations.
fn run_all(options: &NemesisOptions) -> io::Result<usize> {
    if options.mutant.is_some() && !cfg!(feature = "mutants") {
        return Err(io::Error::other("--mutant needs the feature `mutants`"));
    }
    let backends = match &*options.backends {
        [] => BackendKind::value_variants(),
        some => some,
    };
    let mut violations = 0;
    for backend in backends {
        if options.list {
            let names = faults::fitting(*backend).map(|kind| kind.name);
            let names = names.collect::<Vec<_>>().join(" ");
            writeln!(io::stdout(), "{backend}: {names}")?;
            continue;
        }
        let run = NemesisRun {
            backend: *backend,
            length: Duration::from_secs_f64(options.minutes * 60.0),
            seed: options.seed.unwrap_or_else(random_seed),
            mutant: options.mutant.clone(),
            only: options.only.clone(),
            program: env::current_exe()?,
        };
        writeln!(io::stdout(), "nemesis {backend} --seed {}", run.seed)?;
        let (report, found) = run.run()?;
        writeln!(io::stdout(), "{report}")?;
        violations += found;
    }
    Ok(violations)
}

/// Short enough to be typed.
fn random_seed() -> u64 {
    let mut bytes = [0; 4];
    OsEntropy::default().fill(&mut bytes);
    u64::from(u32::from_le_bytes(bytes))
}
