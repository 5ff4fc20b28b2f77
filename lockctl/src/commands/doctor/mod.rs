//! `doctor`: checks that predict the loss of locks.

mod report;
mod round_trip;
mod same_locks;
mod target;
mod trial;

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use polylock::AcquireRequest;
use secrecy::{ExposeSecret as _, SecretString};

use super::app::App;
use crate::args::{duration, secret};
use crate::backend::in_namespace;
use crate::exit::Exit;
use crate::output::{CommandFailure, escaped, human, print, print_json};

use self::report::{DoctorReport, json};

/// Check a server for what silently loses locks: exit 0 if nothing is wrong, else 1
///
/// Connects, checks the settings of the server, measures its round trips, and tries locks on keys of
/// its own that begin with polylock-doctor/. Prints of each problem the impact and the fix, and what
/// was not checked.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Lock services to check [default: that of --backend, or both with `migrate-from`]
    #[arg(value_name = "URL", hide_possible_values = true, value_parser = secret)]
    pub(crate) urls: Vec<SecretString>,
    /// Check whose warning is no fault, by its name; may be given several times
    #[arg(
        long,
        value_name = "CHECK",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(CHECKS),
        hide_possible_values = true
    )]
    pub(crate) accept: Vec<String>,
    /// Check whether all of the URLs lead to the same locks as the first; one URL is compared with that of
    /// --backend
    #[arg(long)]
    pub(crate) same_locks: bool,
    /// Length of the leases that the round trips are judged for
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
}

pub(super) async fn doctor(app: &App, args: &DoctorArgs) -> Result<Exit, CommandFailure> {
    let ttl = args.ttl;
    if !(AcquireRequest::MIN_TTL..=AcquireRequest::MAX_TTL).contains(&ttl) {
        let message = format!("--ttl {} is not between 500ms and 24h", human(ttl));
        return Err(CommandFailure::new(Exit::Usage, message));
    }
    let urls = urls(app, args)?;
    let mut reports: Vec<DoctorReport> = Vec::new();
    for url in &urls {
        let mut report = Box::pin(target::check(url, ttl)).await;
        if args.same_locks
            && let Some(first) = reports.first()
        {
            let have_locked = first.has_locked() && report.has_locked();
            report.checks.push(match have_locked {
                true => Box::pin(same_locks::check(&urls[0], url)).await,
                false => same_locks::not_checked(),
            });
        }
        report.accepted.clone_from(&args.accept);
        if !app.wants_json() {
            print(&report.page(!reports.is_empty()))?;
        }
        reports.push(report);
    }
    if app.wants_json() {
        print_json(&json(&reports))?;
    }
    for name in &args.accept {
        if !reports.iter().any(|report| report.has_accepted(name)) {
            let name = escaped(name);
            app.console
                .note(format!("--accept {name}: there is no such warning"));
        }
    }
    Ok(match reports.iter().any(DoctorReport::has_fault) {
        true => FAULTY,
        false => Exit::Success,
    })
}

/// The URLs to check, with their passwords.
fn urls(app: &App, args: &DoctorArgs) -> Result<Vec<String>, CommandFailure> {
    if args.urls.is_empty() && args.same_locks {
        let message = "--same-locks needs a URL to compare that of --backend with, or several";
        return Err(CommandFailure::new(Exit::Usage, message));
    }
    if args.urls.is_empty() {
        return Ok(app.backend()?.texts());
    }
    let env = |name: &str| std::env::var_os(name);
    let placed =
        |url: &SecretString| in_namespace(&app.global, env, url.expose_secret().to_owned());
    let mut urls = args
        .urls
        .iter()
        .map(placed)
        .collect::<Result<Vec<_>, _>>()?;
    if args.same_locks && urls.len() == 1 {
        let backend = app.backend()?;
        if backend.migrates() {
            let message = "--same-locks compares with one backend, and locks are acquired on two \
                           (`migrate-from`)";
            return Err(CommandFailure::new(Exit::Usage, message)
                .with_hint("give two URLs: one of them, and the one to compare"));
        }
        urls.insert(0, backend.text().to_owned());
    }
    Ok(urls)
}

const FAULTY: Exit = Exit::Of(1);

/// The checks of all backends, in the order of docs/doctor.md.
const CHECKS: [&str; 24] = [
    "url",
    "connect",
    "replica",
    "galera",
    "pooler",
    "nodes",
    "same-server",
    "rejoin",
    "servers",
    "version",
    "eviction",
    "persistence",
    "flush",
    "table",
    "replication",
    "filesystem",
    "access",
    "clock",
    "session-timeout",
    "exclusion",
    "same-locks",
    "token-order",
    "expiry",
    "round-trip",
];
