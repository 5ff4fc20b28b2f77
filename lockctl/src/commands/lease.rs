//! `acquire`, `renew` and `release`: a lease that outlives the process that acquired it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use polylock::{
    AcquireRequest, DistributedLock, Label, LeaseState, LockGuard, LockKey, LockLifetime, Released,
    Renewal, Wait,
};
use serde_json::json;

use super::app::{App, SHUTDOWN, admin, key};
use super::run::{ModeArgs, WaitArgs};
use crate::args::{LeaseText, duration, note};
use crate::backend::BackendUrl;
use crate::child::Signals;
use crate::exit::Exit;
use crate::held_keys::refuse_held;
use crate::output::{CommandFailure, Escaped, Events, deliver, print_json, unix_ms};
use crate::waiting::{LockWait, WaitOutcome, WaitProgress};

/// Acquire a lease that outlives this process, and print its id and fencing token
///
/// For scripts that cannot wrap a command. Nothing renews the lease: end it with `release`, or
/// extend it with `renew` in time.
#[derive(Args, Debug)]
pub(crate) struct AcquireArgs {
    /// Name of the lock
    pub(crate) key: String,
    /// Length of the lease [default: that of the configuration, or 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    /// Free text that list and inspect show
    #[arg(long, value_name = "TEXT", value_parser = note)]
    pub(crate) note: Option<String>,
}

/// Extend a lease that `acquire` took; exit 79 if it is lost
#[derive(Args, Debug)]
pub(crate) struct RenewArgs {
    /// Name of the lock
    pub(crate) key: String,
    /// Id that `acquire` printed
    #[arg(long, value_name = "ID", env = "LOCK_LEASE", hide_env_values = true)]
    pub(crate) lease: LeaseText,
    /// Length of the lease from now on, at least: one that lasts longer is not shortened [default: that of
    /// the configuration, or 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
}

/// Release a lease of `acquire`; exit 79 if it was lost before
#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// Name of the lock
    pub(crate) key: String,
    /// Id that `acquire` printed
    #[arg(long, value_name = "ID", env = "LOCK_LEASE", hide_env_values = true)]
    pub(crate) lease: LeaseText,
}

pub(super) async fn acquire(app: &App, args: AcquireArgs) -> Result<Exit, CommandFailure> {
    let key = key(&args.key)?;
    let backend = app.backend()?;
    let request = request(&key, &args, &backend)?;
    let mut signals = Signals::catch()?;
    refuse_held(&backend, [key.as_str()])?;
    let progress = WaitProgress::default();
    let observer = Arc::new(progress.clone());
    let locks = tokio::select! {
        signal = signals.next_that_ends() => return Ok(Exit::Signaled(signal.as_raw())),
        locks = backend.connect(Some(observer), &app.console) => locks?,
    };
    if backend.migrates() {
        let message =
            "a lock on two backends (`migrate-from`) has two leases, which no text can hold";
        return Err(CommandFailure::new(Exit::Config, message).with_hint(USE_RUN));
    }
    if locks.capabilities().bound != LockLifetime::Lease {
        return Err(without_lease(&*locks));
    }
    let console = app.console.in_background();
    let waiting = LockWait {
        locks: &*locks,
        keys: std::slice::from_ref(&key),
        request: &request,
        console: &console,
        events: &Events::default(),
        programs: &backend.programs(),
        progress: &progress,
    };
    let exit = match waiting
        .wait_for(acquire_in_full(&*locks, &request), &mut signals)
        .await
    {
        Ok(WaitOutcome::Acquired(guard)) => hand_out(app, &*locks, guard).await,
        Ok(WaitOutcome::Held(failure)) => Err(failure),
        Ok(WaitOutcome::Interrupted(signal)) => Ok(Exit::Signaled(signal.as_raw())),
        Err(failure) => Err(failure),
    };
    locks.shutdown(SHUTDOWN).await;
    console.flush();
    exit
}

/// Acquires, and extends a first lease that is much shorter than the ttl, such as that of a waiter on Redis:
/// nothing extends it once this process has ended.
/// Cancel safety: a dropped future leaves the queue, or releases the lock in the background.
async fn acquire_in_full(
    locks: &dyn DistributedLock,
    request: &AcquireRequest,
) -> polylock::Result<LockGuard> {
    let guard = locks.acquire(request).await?;
    let now = tokio::time::Instant::now();
    let valid_until = guard.valid_until();
    // A lock that was free is valid for nine tenths.
    if valid_until.is_some_and(|until| until < now + request.ttl() * 3 / 4) {
        // An error drops the guard, which releases the lock.
        guard.renew().await?;
    }
    Ok(guard)
}

fn request(
    key: &LockKey,
    args: &AcquireArgs,
    backend: &BackendUrl,
) -> Result<AcquireRequest, CommandFailure> {
    let label = Label::of_this_process().with_note(args.note.as_deref().unwrap_or_default());
    let wait = args.wait.wanted().or(backend.lock_settings.wait);
    let request = AcquireRequest::new(key.clone())
        .with_mode(args.mode.mode())
        .with_wait(wait.unwrap_or(Wait::Forever))
        .with_ttl(ttl(args.ttl, backend))
        .with_renewal(Renewal::Manual)
        .with_max_hold(None)
        .with_label(label);
    let request = backend.in_class(request);
    request.validate()?;
    Ok(request)
}

fn ttl(wanted: Option<Duration>, backend: &BackendUrl) -> Duration {
    wanted
        .or(backend.lock_settings.ttl)
        .unwrap_or(AcquireRequest::DEFAULT_TTL)
}

/// The refusal of a backend whose locks outlive no process.
fn without_lease(locks: &dyn DistributedLock) -> CommandFailure {
    let backend = locks.capabilities().backend;
    let message =
        format!("a lock of this backend ({backend}) ends with the process that acquired it");
    let failure = CommandFailure::new(Exit::Config, message).with_hint(USE_RUN);
    match backend {
        "mysql" | "postgres" => failure.with_hint(
            "or use mode=lease in the URL; its locks do not exclude those of other modes",
        ),
        _ => failure,
    }
}

const USE_RUN: &str = "use `lockctl run`, which keeps the process";

/// Prints what a later `renew` or `release` needs, and lets go without giving back.
async fn hand_out(
    app: &App,
    locks: &dyn DistributedLock,
    guard: LockGuard,
) -> Result<Exit, CommandFailure> {
    let (Some(lease), Some(valid_until)) = (guard.lease_id(), guard.valid_until()) else {
        guard.release().await?;
        return Err(without_lease(locks));
    };
    let (key, token) = (
        guard.key().as_str(),
        guard.fencing_token().map(|token| token.value()),
    );
    let valid_for = valid_until.saturating_duration_since(tokio::time::Instant::now());
    let deadline = unix_ms(SystemTime::now() + valid_for);
    let answer = json!({
        "key": key,
        "lease": lease.to_hex(),
        "token": token,
        "deadline_unix_ms": deadline,
    });
    let text = || {
        let token = token.map(|token| token.to_string()).unwrap_or_default();
        format!(
            "LOCK_KEY={}\nLOCK_LEASE={}\nLOCK_FENCING_TOKEN={token}\nLOCK_DEADLINE_UNIX_MS={deadline}\n",
            shell_word(key),
            lease.to_hex(),
        )
    };
    // A lease whose id was not read is useless.
    let delivered = deliver(&app.line(&answer, text));
    if !matches!(delivered, Ok(true)) {
        guard.release().await?;
        delivered?;
        return Err(CommandFailure::new(
            Exit::Internal,
            "nobody reads standard output",
        ));
    }
    guard.abandon();
    Ok(Exit::Success)
}

pub(super) async fn renew(app: &App, args: &RenewArgs) -> Result<Exit, CommandFailure> {
    let key = key(&args.key)?;
    let backend = app.backend()?;
    backend.check_is_one()?;
    let ttl = ttl(args.ttl, &backend);
    AcquireRequest::new(key.clone())
        .with_ttl(ttl)
        .with_max_hold(None)
        .validate()?;
    let locks = backend.connect(None, &app.console).await?;
    // The deadline counts from before the request leaves.
    let sent = SystemTime::now();
    match admin(&*locks)?.renew_lease(&key, args.lease.0, ttl).await? {
        LeaseState::Held => {}
        LeaseState::Lost(reason) => return Err(lost(&key, &reason.to_string())),
        _ => return Err(lost(&key, "the backend does not say why")),
    }
    let deadline = unix_ms(sent + valid(ttl));
    let answer = json!({ "key": key.as_str(), "deadline_unix_ms": deadline });
    app.answer(&answer, || format!("LOCK_DEADLINE_UNIX_MS={deadline}\n"))?;
    Ok(Exit::Success)
}

pub(super) async fn release(app: &App, args: &ReleaseArgs) -> Result<Exit, CommandFailure> {
    let key = key(&args.key)?;
    let locks = app.connect().await?;
    let released = admin(&*locks)?.release_lease(&key, args.lease.0).await?;
    let is_clean = released == Released::Clean;
    if app.wants_json() {
        let outcome = if is_clean { "clean" } else { "already_lost" };
        print_json(&json!({ "key": key.as_str(), "outcome": outcome }))?;
    }
    match is_clean {
        true => Ok(Exit::Success),
        false => Err(lost(&key, "the lease had ended before")),
    }
}

fn lost(key: &LockKey, reason: &str) -> CommandFailure {
    let message = format!("lost the lock on {}: {reason}", Escaped(key.as_str()));
    CommandFailure::new(Exit::Lost, message)
}

/// The part of a lease that is relied on; the clock of the server may run faster than ours.
fn valid(ttl: Duration) -> Duration {
    ttl.saturating_sub((ttl / 10).max(Duration::from_millis(50)))
}

/// The key as one word of a shell, exactly.
fn shell_word(key: &str) -> String {
    format!("'{}'", key.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_lease_is_not_relied_on() {
        assert_eq!(valid(Duration::from_secs(60)), Duration::from_secs(54));
    }
}
