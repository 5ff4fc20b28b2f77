//! The commands, each with its options.

mod app;
#[cfg(feature = "bench")]
mod bench;
mod break_lock;
mod config;
mod doctor;
mod lead;
mod leader;
mod lease;
mod manual;
mod queries;
mod run;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod schema;
mod top;

use std::io;
use std::os::unix::net::UnixStream;

use self::app::App;
#[cfg(feature = "bench")]
pub(crate) use self::bench::{BenchArgs, worker};
pub(crate) use self::break_lock::BreakArgs;
pub(crate) use self::config::ConfigArgs;
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::lead::LeadArgs;
pub(crate) use self::leader::LeaderArgs;
pub(crate) use self::lease::{AcquireArgs, ReleaseArgs, RenewArgs};
pub(crate) use self::manual::CompletionsArgs;
pub(crate) use self::queries::{KeyArgs, PatternArgs};
pub(crate) use self::run::RunArgs;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) use self::schema::SchemaArgs;
pub(crate) use self::top::TopArgs;
use crate::args::{CliCommand, GlobalArgs};
use crate::exit::Exit;
use crate::output::{CommandFailure, Console};

pub(crate) fn execute(command: CliCommand, global: GlobalArgs) -> Result<Exit, CommandFailure> {
    let app = App {
        console: Console::new(global.quiet),
        global,
    };
    match command {
        CliCommand::Run(args) => block_on(run::run(&app, args)),
        CliCommand::Lead(args) => block_on(lead::lead(&app, args)),
        CliCommand::Leader(args) => block_on(leader::leader(&app, &args)),
        CliCommand::Try(args) => block_on(queries::try_lock(&app, &args)),
        CliCommand::List(args) => block_on(queries::list(&app, &args)),
        CliCommand::Inspect(args) => block_on(queries::inspect(&app, &args)),
        CliCommand::Top(args) => block_on(top::top(&app, &args)),
        CliCommand::Watch(args) => block_on(queries::watch(&app, &args)),
        CliCommand::Break(args) => block_on(break_lock::break_lock(&app, &args)),
        CliCommand::Acquire(args) => block_on(lease::acquire(&app, args)),
        CliCommand::Renew(args) => block_on(lease::renew(&app, &args)),
        CliCommand::Release(args) => block_on(lease::release(&app, &args)),
        #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
        CliCommand::Schema(args) => block_on(schema::schema(&app, &args)),
        CliCommand::Doctor(args) => block_on(doctor::doctor(&app, &args)),
        CliCommand::Config(args) => config::config(&app, &args),
        #[cfg(feature = "bench")]
        CliCommand::Bench(args) => bench::bench(&app, &args),
        CliCommand::Completions(args) => manual::completions(&args),
        CliCommand::Man => manual::man(),
    }
}

/// Everything runs on the main thread, since a command dies with the thread that started it.
fn block_on(
    work: impl Future<Output = Result<Exit, CommandFailure>>,
) -> Result<Exit, CommandFailure> {
    let cannot_start = "cannot start the runtime";
    check_descriptors().map_err(CommandFailure::internal(cannot_start))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandFailure::internal(cannot_start))?;
    let ended = runtime.block_on(work);
    // A thread that reads from a file system that hangs does not hold up the end.
    runtime.shutdown_background();
    ended
}

/// Fails if the process cannot open the descriptors of the runtime. With room for only some of them, the runtime panics.
fn check_descriptors() -> io::Result<()> {
    let pairs = [(); 3].map(|()| UnixStream::pair());
    pairs.into_iter().try_for_each(|pair| pair.map(drop))
}
