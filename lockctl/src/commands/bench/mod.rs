//! `bench`: locks side by side.

mod args;
mod files;
mod targets;

use indicatif::{ProgressBar, ProgressStyle};
use polylock_bench::report::compare::{Change, Comparison};
use polylock_bench::report::{Report, Table};
use polylock_bench::subject;
use polylock_bench::target::Openers;

use super::app::App;
use crate::child::Signals;
use crate::exit::Exit;
use crate::output::{CommandFailure, Escaped, escaped, path_text};

use self::args::{BenchCommand, CompareArgs, FormArgs, MeasureArgs, ShowArgs};
use self::files::{read, write_forms, write_json};

pub(crate) use self::args::BenchArgs;

/// Does what the command line asks for, on a runtime of its own: contenders want several threads.
pub(super) fn bench(app: &App, args: &BenchArgs) -> Result<Exit, CommandFailure> {
    match &args.command {
        Some(BenchCommand::Compare(args)) => compare(app, args),
        Some(BenchCommand::Show(args)) => show(app, args),
        None => measure(app, &args.measure),
    }
}

/// What a process does that [`polylock_bench::run`] starts as a contender.
pub(crate) fn worker() -> Result<Exit, CommandFailure> {
    let served = runtime()?.block_on(polylock_bench::worker::serve(&Openers::compiled_in()));
    served.map_err(|e| failure(&e))?;
    Ok(Exit::Success)
}

fn measure(app: &App, args: &MeasureArgs) -> Result<Exit, CommandFailure> {
    files::check(args)?;
    let (targets, _directory) = targets::choose(app, args)?;
    let plan = args.plan();
    let report = runtime()?.block_on(async {
        let mut signals = Signals::catch()?;
        let bar = progress_bar(app.console.is_chatty());
        let progress = |done: u32, of: u32, what: &str| {
            bar.set_length(of.into());
            bar.set_position(done.into());
            bar.set_message(escaped(what));
            bar.tick();
        };
        let run = polylock_bench::run(&plan, targets, &progress);
        // The run then ends in order: contender processes and temporary files go with it.
        let ended = tokio::select! {
            report = Box::pin(run) => Ok(report),
            signal = signals.next_that_ends() => Err(signal),
        };
        bar.finish_and_clear();
        Ok::<_, CommandFailure>(ended)
    })?;
    let report = match report {
        Ok(report) => report.map_err(|e| failure(&e))?,
        Err(signal) => return Ok(Exit::Signaled(signal.as_raw())),
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

fn show(app: &App, args: &ShowArgs) -> Result<Exit, CommandFailure> {
    let report = read(&args.report)?;
    answer(app, &report)?;
    write(app, &report, &args.forms)?;
    verdict(&report)
}

fn answer(app: &App, report: &Report) -> Result<(), CommandFailure> {
    app.answer(&report.to_json(), || text(&report.tables()))
}

fn text(tables: &[Table]) -> String {
    let texts: Vec<_> = tables.iter().map(|table| table.to_text(escaped)).collect();
    texts.join("\n")
}

fn write(app: &App, report: &Report, forms: &FormArgs) -> Result<(), CommandFailure> {
    write_forms(report, forms)?;
    if let Some(file) = &forms.html {
        let file = escaped(&path_text(file));
        app.console.note(format!("the page is {file}"));
    }
    Ok(())
}

fn compare(app: &App, args: &CompareArgs) -> Result<Exit, CommandFailure> {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let comparison = Comparison::new(&old, &new, &args.fail_on);
    if !comparison.has_common {
        let message = "the reports have nothing in common that could be compared";
        return Err(CommandFailure::new(Exit::Usage, message).with_hint(
            "compare runs with the same names of targets, workloads, contenders and times",
        ));
    }
    // It could never fail, although its user expects that it can.
    if !comparison.idle_limits.is_empty() {
        let limits = comparison.idle_limits.join(", ");
        let message = format!("the older report has no figure for --fail-on {limits}");
        return Err(CommandFailure::new(Exit::Usage, message)
            .with_hint("limit what its workloads measure, or measure it again"));
    }
    for warning in &comparison.warnings {
        app.console.warn(escaped(warning));
    }
    let mut answer = serde_json::to_value(&comparison).expect("BUG: it is JSON");
    answer["schema"] = "lock-bench-comparison/1".into();
    app.answer(&answer, || changes(&comparison))?;
    fails("the locks do not hold", "found", &new.violations())?;
    let worse: Vec<_> = comparison.failures().map(sentence).collect();
    fails("figures are beyond --fail-on", "worse", &worse)?;
    verdict(&new)
}

/// A line for each figure, and what only one of the reports has.
fn changes(comparison: &Comparison) -> String {
    let mut text = text(&comparison.tables());
    for (which, series) in [("old", &comparison.gone), ("new", &comparison.added)] {
        for series in series {
            text += &format!("only in the {which} report: {}\n", Escaped(series));
        }
    }
    text
}

/// Why a change makes the comparison fail.
fn sentence(change: &Change) -> String {
    let [old, new, by] = change.medians();
    let (place, limit) = (change.place(), change.passes.as_deref().unwrap_or_default());
    let metric = change.metric;
    format!("{metric} of {place}: {old} to {new} ({by}), limit {limit}")
}

/// A run fails if the locks did not exclude, and if nothing was acquired where something should be.
fn verdict(report: &Report) -> Result<Exit, CommandFailure> {
    fails("the locks do not hold", "found", &report.violations())?;
    let message = "no lock was ever acquired in a part of the measurements";
    fails(message, "nothing in", &report.without_acquisitions()).map_err(|failure| {
        failure.with_hint("the report has the errors; slow locks need a longer --duration")
    })?;
    Ok(Exit::Success)
}

/// Fails with some of what was found, if there is anything.
fn fails(message: &str, what: &'static str, found: &[String]) -> Result<(), CommandFailure> {
    if found.is_empty() {
        return Ok(());
    }
    let failure = CommandFailure::new(FAILED, format!("{message} ({} found)", found.len()));
    let shown = found.iter().take(SHOWN);
    Err(shown.fold(failure, |f, text| f.with_detail(what, escaped(text))))
}

fn failure(failure: &subject::Failure) -> CommandFailure {
    let exit = match failure.kind() {
        "denied" => Exit::Denied,
        "invalid" => Exit::Usage,
        "unavailable" => Exit::Unavailable,
        "unsupported" => Exit::Config,
        _ => Exit::Internal,
    };
    CommandFailure::new(exit, escaped(failure.message()))
}

fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CommandFailure::internal("cannot start the runtime"))
}

/// A bar on standard error, hidden without a terminal or if it is not wanted.
fn progress_bar(is_wanted: bool) -> ProgressBar {
    let bar = match is_wanted {
        true => ProgressBar::no_length(),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {eta}");
    bar.with_style(style.expect("BUG: the template is valid"))
}

const FAILED: Exit = Exit::Of(1);
/// Violations and series that are named; the report has all.
const SHOWN: usize = 10;
