//! The commands, each with its options.

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

use std::sync::Arc;
use std::time::Duration;

use polylock::admin::LockAdmin;
use polylock::{DistributedLock, LockKey};

#[cfg(feature = "bench")]
pub(crate) use self::bench::{BenchArgs, worker};
pub(crate) use self::break_lock::BreakArgs;
pub(crate) use self::config::ConfigArgs;
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::lead::LeadArgs;
pub(crate) use self::leader::LeaderArgs;
pub(crate) use self::lease::{AcquireArgs, ReleaseArgs, RenewArgs};
pub(crate) use self::manual::CompletionsArgs;
pub(crate) use self::run::{LostAction, Pgid, RunArgs};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) use self::schema::SchemaArgs;
pub(crate) use self::top::TopArgs;
use crate::args::{CliCommand, GlobalArgs, OutputFormat};
use crate::backend::BackendUrl;
use crate::exit::Exit;
use crate::output::{CommandFailure, Console};

/// Does what the command line asks for.
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandFailure::internal("cannot start the runtime"))?;
    runtime.block_on(work)
}

/// What all commands share.
#[derive(Debug)]
struct App {
    global: GlobalArgs,
    console: Console,
}

impl App {
    fn backend(&self) -> Result<BackendUrl, CommandFailure> {
        BackendUrl::choose(&self.global, |name: &str| std::env::var_os(name))
    }

    async fn connect(&self) -> Result<Arc<dyn DistributedLock>, CommandFailure> {
        self.backend()?.connect(None).await
    }

    fn wants_json(&self) -> bool {
        self.global.format == OutputFormat::Json
    }
}

/// The administration of the backend, which not every backend has.
fn admin(locks: &dyn DistributedLock) -> Result<&dyn LockAdmin, CommandFailure> {
    locks.admin().ok_or_else(|| {
        let backend = locks.capabilities().backend;
        CommandFailure::new(
            Exit::Config,
            format!("{backend} does not tell about locks of others"),
        )
    })
}

/// Checks a key before anything is connected to.
fn key(name: &str) -> Result<LockKey, CommandFailure> {
    Ok(LockKey::new(name)?)
}

/// Time for background releases before the process ends.
const SHUTDOWN: Duration = Duration::from_secs(2);
