//! `doctor`: checks that predict the loss of locks.

mod output;
mod report;
mod round_trip;
mod target;
mod timing;
mod tls;
mod trial;

use polylock::AcquireRequest;

use super::App;
use crate::args::DoctorArgs;
use crate::backend::in_namespace;
use crate::exit::Exit;
use crate::messages::Failure;
use crate::output::{print, print_json};
use crate::text::{escaped, human};

use self::report::Report;

pub(super) async fn doctor(app: &App, args: &DoctorArgs) -> Result<Exit, Failure> {
    let ttl = args.ttl;
    if !(AcquireRequest::MIN_TTL..=AcquireRequest::MAX_TTL).contains(&ttl) {
        let message = format!("--ttl {} is not between 1s and 24h", human(ttl));
        return Err(Failure::new(Exit::Usage, message));
    }
    let mut reports = Vec::new();
    for url in urls(app, args)? {
        let mut report = Box::pin(target::check(&url, ttl)).await;
        report.accept(&args.accept);
        if !app.wants_json() {
            print(&output::page(&report, !reports.is_empty()))?;
        }
        reports.push(report);
    }
    if app.wants_json() {
        print_json(&output::json(&reports))?;
    }
    for name in &args.accept {
        if !reports.iter().any(|report| report.has_accepted(name)) {
            let name = escaped(name);
            app.console
                .note(format!("--accept {name}: there is no such warning"));
        }
    }
    Ok(match reports.iter().any(Report::has_fault) {
        true => FAULTY,
        false => Exit::Success,
    })
}

/// The URLs to check, with their passwords.
fn urls(app: &App, args: &DoctorArgs) -> Result<Vec<String>, Failure> {
    if args.urls.is_empty() {
        return Ok(vec![app.backend()?.text().to_owned()]);
    }
    let env = |name: &str| std::env::var_os(name);
    let placed = |url: &String| in_namespace(&app.global, env, url.clone());
    args.urls.iter().map(placed).collect()
}

const FAULTY: Exit = Exit::Of(1);
