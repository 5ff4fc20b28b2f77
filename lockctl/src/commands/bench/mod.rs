//! `bench`: locks side by side.

mod args;
mod changes;
mod files;
mod progress;
mod targets;

use std::path::Path;

use polylock_bench::report::Report;
use polylock_bench::subject;
use tokio::signal::unix::{SignalKind, signal};

use super::App;
use crate::exit::Exit;
use crate::output::{Failure, escaped, print, print_json};

use self::args::{BenchCommand, CompareArgs, FormArgs, MeasureArgs, ShowArgs};
use self::files::{read, write_forms, write_json};
use self::progress::Bar;
use self::targets::Targets;

pub(crate) use self::args::BenchArgs;

/// Does what the command line asks for, on a runtime of its own: contenders want several threads.
pub(super) fn bench(app: &App, args: &BenchArgs) -> Result<Exit, Failure> {
    match &args.command {
        Some(BenchCommand::Compare(args)) => compare(app, args),
        Some(BenchCommand::Show(args)) => show(app, args),
        None => measure(app, &args.measure),
    }
}

/// What a process does that [`polylock_bench::run`] starts as a contender.
pub(crate) fn worker() -> Result<Exit, Failure> {
    let served = runtime()?.block_on(polylock_bench::worker::serve(&targets::openers()));
    served.map_err(|e| failure(&e))?;
    Ok(Exit::Success)
}

fn measure(app: &App, args: &MeasureArgs) -> Result<Exit, Failure> {
    files::check(args)?;
    let targets = Targets::choose(app, args)?;
    let plan = args.plan();
    let report = runtime()?.block_on(async {
        let bar = Bar::new(app.console.is_chatty());
        let progress = |done, of, what: &str| bar.show(done, of, what);
        let run = polylock_bench::run(&plan, targets.list.clone(), &progress);
        let ended = tokio::select! {
            report = Box::pin(run) => Ok(report),
            signal = interrupted() => Err(signal?),
        };
        bar.end();
        Ok::<_, Failure>(ended)
    })?;
    let report = match report {
        Ok(report) => report.map_err(|e| failure(&e))?,
        Err(signal) => return Ok(Exit::Signaled(signal)),
    };
    for warning in &report.environment.warnings {
        app.console.warn(escaped(warning));
    }
    answer(app, &report)?;
    if let Some(file) = &args.json {
        write_json(&report, file)?;
    }
    write(app, &report, &args.forms)?;
    verdict(&report)
}

fn show(app: &App, args: &ShowArgs) -> Result<Exit, Failure> {
    let report = read(&args.report)?;
    answer(app, &report)?;
    write(app, &report, &args.forms)?;
    verdict(&report)
}

fn answer(app: &App, report: &Report) -> Result<(), Failure> {
    match app.wants_json() {
        true => print_json(&report.to_json()),
        false => {
            let tables = report.tables();
            let texts: Vec<_> = tables.iter().map(|table| table.to_text(escaped)).collect();
            print(&texts.join("\n"))
        }
    }
}

fn write(app: &App, report: &Report, forms: &FormArgs) -> Result<(), Failure> {
    write_forms(report, forms)?;
    if let Some(file) = &forms.html {
        let file = file.display().to_string();
        app.console.note(format!("the page is {}", escaped(&file)));
    }
    Ok(())
}

fn compare(app: &App, args: &CompareArgs) -> Result<Exit, Failure> {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let comparison = polylock_bench::report::compare::Comparison::new(&old, &new, &args.fail_on);
    if !comparison.has_common {
        let message = "the reports have nothing in common that could be compared";
        return Err(Failure::new(Exit::Usage, message).with_hint(
            "compare runs with the same names of targets, workloads, contenders and times",
        ));
    }
    // It could never fail, although its user expects that it can.
    if !comparison.idle_limits.is_empty() {
        let limits = comparison.idle_limits.join(", ");
        let message = format!("the older report has no figure for --fail-on {limits}");
        return Err(Failure::new(Exit::Usage, message)
            .with_hint("limit what its workloads measure, or measure it again"));
    }
    for warning in &comparison.warnings {
        app.console.warn(escaped(warning));
    }
    match app.wants_json() {
        true => print_json(&changes::json(&comparison))?,
        false => print(&changes::table(&comparison))?,
    }
    fails("the locks do not hold", "found", &new.violations())?;
    let worse: Vec<_> = comparison.failures().map(changes::sentence).collect();
    fails("figures are beyond --fail-on", "worse", &worse)?;
    verdict(&new)
}

/// A run fails if the locks did not exclude, and if nothing was acquired where something should be.
fn verdict(report: &Report) -> Result<Exit, Failure> {
    fails("the locks do not hold", "found", &report.violations())?;
    let message = "no lock was ever acquired in a part of the measurements";
    fails(message, "nothing in", &report.without_acquisitions()).map_err(|failure| {
        failure.with_hint("the report has the errors; slow locks need a longer --duration")
    })?;
    Ok(Exit::Success)
}

/// Fails with some of what was found, if there is anything.
fn fails(message: &str, what: &'static str, found: &[String]) -> Result<(), Failure> {
    if found.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(FAILED, format!("{message} ({} found)", found.len()));
    let shown = found.iter().take(SHOWN);
    Err(shown.fold(failure, |f, text| f.with_detail(what, escaped(text))))
}

fn failure(failure: &subject::Failure) -> Failure {
    let exit = match failure.kind() {
        "denied" => Exit::Denied,
        "invalid" => Exit::Usage,
        "unavailable" => Exit::Unavailable,
        "unsupported" => Exit::Config,
        _ => Exit::Internal,
    };
    Failure::new(exit, escaped(failure.message()))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::internal("cannot start the runtime"))
}

/// Waits for an interrupt. The run then ends in order: contender processes and temporary files go
/// with it.
async fn interrupted() -> Result<i32, Failure> {
    let listen = |kind| signal(kind).map_err(Failure::internal("cannot listen for signals"));
    let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
    let (mut interrupts, mut terminations) = (listen(interrupt)?, listen(terminate)?);
    tokio::select! {
        _signal = interrupts.recv() => Ok(interrupt.as_raw_value()),
        _signal = terminations.recv() => Ok(terminate.as_raw_value()),
    }
}

fn is_directory(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.is_dir()
}

const FAILED: Exit = Exit::Of(1);
/// Violations and series that are named; the report has all.
const SHOWN: usize = 10;
