//! `lead`: a command that runs on one of several hosts.

use std::convert::Infallible;
use std::io::{IsTerminal, stdin};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use polylock::coordination::{Backoff, Election, Leadership};
use polylock::{AcquireRequest, Capabilities, DistributedLock, Wait};
use tokio::time::{Instant, sleep};

use super::app::{App, SHUTDOWN, key};
use super::run::CommandArgs;
use crate::args::address;
use crate::child::{
    CommandLocks, CommandRules, ENDED_BEFORE, Ending, ReleasedLocks, Runner, Signals, Stop,
};
use crate::exit::Exit;
use crate::held_keys::refuse_held;
use crate::output::{CommandFailure, Escaped, Events, escaped, human};
use crate::waiting::LockWait;

/// Keep a command running on one of several hosts
///
/// Waits until this host leads, and runs the command as `run` does. When the command ends, in
/// whatever way, the host resigns, so that another one leads, and campaigns again after a backoff: 0.5s
/// at first, twice as long after each term of less than 10s, and 10s at most. INT, TERM or QUIT
/// stops the command, resigns and exits with 0.
#[derive(Args, Debug)]
#[command(
    override_usage = "lockctl lead [OPTIONS] <NAME> -- <COMMAND>...\n       \
                            lockctl lead [OPTIONS] <NAME> --shell <STRING>"
)]
pub(crate) struct LeadArgs {
    /// Name of the election, which is the key of its lock
    name: String,
    /// Where this host is reached while it leads, for `lockctl leader` and other followers
    #[arg(long, value_name = "TEXT", value_parser = address)]
    address: Option<String>,
    #[command(flatten)]
    command: CommandArgs,
}

pub(super) async fn lead(app: &App, args: LeadArgs) -> Result<Exit, CommandFailure> {
    let (name, backend) = (key(&args.name)?, app.backend()?);
    backend.check_is_one()?;
    let mut request = AcquireRequest::new(name.clone())
        .with_wait(Wait::Forever)
        .with_max_hold(None)
        .with_label(args.command.label());
    if let Some(ttl) = args.command.ttl.or(backend.lock_settings.ttl) {
        request = request.with_ttl(ttl);
    }
    request.validate()?;
    let rules = CommandRules {
        is_service: true,
        ..args.command.rules(request.ttl())?
    };
    refuse_held(&backend, [name.as_str()])?;
    let mut signals = Signals::catch()?;
    if !stdin().is_terminal() {
        signals = signals.without_hangup();
    }
    let events = tokio::select! {
        biased;
        _ = signals.next_that_ends() => return Ok(Exit::Success),
        events = Events::open(args.command.events.clone(), &app.console) => events?,
    };
    let runner = args
        .command
        .runner(rules, &request, backend, &app.console, events);
    let exit = stand(&runner, &request, args.address, &mut signals).await;
    runner.flush();
    exit
}

async fn stand(
    runner: &Runner,
    request: &AcquireRequest,
    address: Option<String>,
    signals: &mut Signals,
) -> Result<Exit, CommandFailure> {
    let Some(locks) = connect(runner, signals).await? else {
        return Ok(Exit::Success);
    };
    let election = Election::new(Arc::clone(&locks), request.key().clone())?;
    let candidate = LeadCandidate {
        runner,
        election: election.ttl(request.ttl()).label(request.label().clone()),
        capabilities: locks.capabilities(),
        address,
    };
    let waiting = LockWait {
        locks: &*locks,
        keys: std::slice::from_ref(request.key()),
        request,
        console: &runner.console,
        events: &runner.events,
        programs: &runner.backend.programs(),
        progress: &runner.progress,
    };
    let ended = candidate.stand(&waiting, signals).await;
    locks.shutdown(SHUTDOWN).await;
    ended.map(|()| Exit::Success)
}

/// Connects, again and again while the backend is away; `None` if a signal comes first.
async fn connect(
    runner: &Runner,
    signals: &mut Signals,
) -> Result<Option<Arc<dyn DistributedLock>>, CommandFailure> {
    let (mut backoff, mut pause) = (Backoff::new(), Duration::ZERO);
    loop {
        let connecting = async {
            sleep(pause).await;
            runner.connect().await
        };
        let connected = tokio::select! {
            biased;
            _ = signals.next_that_ends() => return Ok(None),
            connected = connecting => connected,
        };
        match connected {
            Err(failure) if failure.exit() == Exit::Unavailable => {
                runner.console.fail(&failure);
                pause = backoff.pause_after(Duration::ZERO);
                let again = format_args!("connects again in {}", human(pause));
                runner.console.note(again);
            }
            connected => return connected.map(Some),
        }
    }
}

/// This host in the election.
#[derive(Debug)]
struct LeadCandidate<'a> {
    runner: &'a Runner,
    election: Election,
    capabilities: Capabilities,
    address: Option<String>,
}

impl LeadCandidate<'_> {
    /// Campaigns and runs the command again and again, until a signal ends it.
    async fn stand(
        &self,
        waiting: &LockWait<'_>,
        signals: &mut Signals,
    ) -> Result<(), CommandFailure> {
        let mut backoff = Backoff::new();
        loop {
            let began = Instant::now();
            let campaign = self.election.campaign();
            let lasted = match waiting.until_signal(campaign, signals).await {
                Err(_) => return Ok(()),
                Ok(Err(error)) if !error.is_retryable() => return Err(error.into()),
                Ok(Err(error)) => {
                    let error = escaped(&error.to_string());
                    self.warn(format_args!("the campaign failed: {error}"));
                    Duration::ZERO
                }
                Ok(Ok(leadership)) => {
                    let (waited, elected) = (began.elapsed(), Instant::now());
                    if self.serve(leadership, waited, signals).await {
                        return Ok(());
                    }
                    elected.elapsed()
                }
            };
            let pause = backoff.pause_after(lasted);
            self.note(format_args!("campaigns again in {}", human(pause)));
            tokio::select! {
                biased;
                _ = signals.next_that_ends() => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// One term; true if a signal ended it.
    async fn serve(&self, leadership: Leadership, waited: Duration, signals: &mut Signals) -> bool {
        let held = CommandLocks::new([leadership.guard()]);
        self.runner.tell_acquired(&held, waited);
        let token = leadership.fencing_token();
        self.note(format_args!("leads with token {token}"));
        let running = self.runner.run_under(&held, self.capabilities, signals);
        let ended = tokio::select! {
            // The command begins first.
            biased;
            ended = Box::pin(running) => ended,
            never = self.proclaim(&leadership) => match never {},
        };
        let is_asked = self.report(&ended);
        let locks = ReleasedLocks::new(&held);
        let resigning = leadership.resign();
        if self.runner.release(&locks, &ended, resigning).await {
            self.warn(format_args!("the lead is lost: {ENDED_BEFORE}"));
        }
        is_asked
    }

    /// Says how a term ended; true if a signal ended it.
    fn report(&self, ended: &Result<Ending, CommandFailure>) -> bool {
        match ended {
            Ok(ending) => {
                let status = ending.status;
                match ending.stop {
                    Some(Stop::Lost(reason)) => self.warn(format_args!(
                        "the lead is lost: {reason}; the command ended with {status}"
                    )),
                    Some(Stop::MaxHold) => self.warn(format_args!(
                        "max-hold is over; the command ended with {status}"
                    )),
                    Some(Stop::Expiring) => self.warn(format_args!(
                        "the lease could not be renewed in time; the command ended with {status}"
                    )),
                    _ => self.note(format_args!("resigns, the command ended with {status}")),
                }
                ending.is_asked
            }
            Err(failure) => {
                self.runner.console.fail(failure);
                false
            }
        }
    }

    /// Tells followers where this host is reached, if that is known.
    async fn proclaim(&self, leadership: &Leadership) -> Infallible {
        let mut is_failing = false;
        while let Some(address) = &self.address {
            match leadership.proclaim(address).await {
                Ok(()) => break,
                Err(error) => {
                    if !is_failing {
                        let error = escaped(&error.to_string());
                        self.warn(format_args!("followers do not see the address: {error}"));
                    }
                    is_failing = true;
                    if !error.is_retryable() {
                        break;
                    }
                }
            }
            sleep(PROCLAIM_INTERVAL).await;
        }
        std::future::pending().await
    }

    fn note(&self, message: std::fmt::Arguments<'_>) {
        let name = Escaped(self.election.name());
        self.runner.console.note(format_args!("{name}: {message}"));
    }

    fn warn(&self, message: std::fmt::Arguments<'_>) {
        let name = Escaped(self.election.name());
        self.runner.console.warn(format_args!("{name}: {message}"));
    }
}

/// Time between two attempts to proclaim an address.
const PROCLAIM_INTERVAL: Duration = Duration::from_secs(1);
