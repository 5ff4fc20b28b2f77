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
pub(crate) use self::run::{OnLost, Pgid, RunArgs};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) use self::schema::SchemaArgs;
pub(crate) use self::top::TopArgs;
use crate::args::{Command, Format, GlobalArgs};
use crate::backend::BackendUrl;
use crate::exit::Exit;
use crate::output::{Console, Failure};

/// Does what the command line asks for.
pub(crate) fn execute(command: Command, global: GlobalArgs) -> Result<Exit, Failure> {
    let app = App {
        console: Console::new(global.quiet),
        global,
    };
    match command {
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::bench(&app, &args),
        command => runtime()?.block_on(app.serve(command)),
    }
}

/// Everything runs on the main thread, since a command dies with the thread that started it.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::internal("cannot start the runtime"))
}

/// What all commands share.
#[derive(Debug)]
struct App {
    global: GlobalArgs,
    console: Console,
}

impl App {
    async fn serve(&self, command: Command) -> Result<Exit, Failure> {
        match command {
            Command::Run(args) => Box::pin(run::run(self, args)).await,
            Command::Lead(args) => Box::pin(lead::lead(self, args)).await,
            Command::Leader(args) => leader::leader(self, &args).await,
            Command::Try(args) => queries::try_lock(self, &args).await,
            Command::List(args) => queries::list(self, &args).await,
            Command::Inspect(args) => queries::inspect(self, &args).await,
            Command::Top(args) => Box::pin(top::top(self, &args)).await,
            Command::Watch(args) => queries::watch(self, &args).await,
            Command::Break(args) => break_lock::break_lock(self, &args).await,
            Command::Acquire(args) => Box::pin(lease::acquire(self, args)).await,
            Command::Renew(args) => lease::renew(self, &args).await,
            Command::Release(args) => lease::release(self, &args).await,
            #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
            Command::Schema(args) => schema::schema(self, &args).await,
            Command::Doctor(args) => doctor::doctor(self, &args).await,
            Command::Config(args) => config::config(self, &args),
            #[cfg(feature = "bench")]
            Command::Bench(_) => unreachable!("BUG: it has a runtime of its own"),
            Command::Completions(args) => manual::completions(&args),
            Command::Man => manual::man(),
        }
    }

    fn backend(&self) -> Result<BackendUrl, Failure> {
        BackendUrl::choose(&self.global, |name: &str| std::env::var_os(name))
    }

    async fn connect(&self) -> Result<Arc<dyn DistributedLock>, Failure> {
        self.backend()?.connect(None).await
    }

    fn wants_json(&self) -> bool {
        self.global.format == Format::Json
    }
}

/// The administration of the backend, which not every backend has.
fn admin(locks: &dyn DistributedLock) -> Result<&dyn LockAdmin, Failure> {
    locks.admin().ok_or_else(|| {
        let backend = locks.capabilities().backend;
        Failure::new(
            Exit::Config,
            format!("{backend} does not tell about locks of others"),
        )
    })
}

/// Checks a key before anything is connected to.
fn key(name: &str) -> Result<LockKey, Failure> {
    Ok(LockKey::new(name)?)
}

/// Time for background releases before the process ends.
const SHUTDOWN: Duration = Duration::from_secs(2);
