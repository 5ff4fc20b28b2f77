//! `lock-bench-peers`: the benchmark of polylock, with locks of other libraries beside its own.

mod args;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use lock_bench_peers::openers;
use polylock_bench::subject::Failure;
use polylock_bench::worker;

use crate::args::Args;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match std::env::args().nth(1) {
        Some(first) if first == worker::ARGUMENT => worker::serve(&openers()).await.map(|()| true),
        _ => measure(&Args::parse()).await,
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            let _nobody_reads_it = writeln!(io::stderr(), "lock-bench-peers: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Whether no lock was held by two, and each was held at all.
async fn measure(args: &Args) -> Result<bool, Failure> {
    let targets = args.targets(&openers())?;
    let progress = |done: u32, of: u32, what: &str| {
        let _nobody_reads_it = writeln!(io::stderr(), "{done}/{of} {what}");
    };
    let report = polylock_bench::run(&args.plan(), targets, &progress).await?;
    let written = |error: io::Error| Failure::of("output", &error);
    if let Some(path) = &args.json {
        std::fs::write(path, report.to_json().to_string()).map_err(written)?;
    }
    if let Some(path) = &args.html {
        std::fs::write(path, report.to_html()).map_err(written)?;
    }
    let mut out = io::stdout().lock();
    for table in report.tables() {
        writeln!(out, "{}", table.to_text(str::to_owned)).map_err(written)?;
    }
    let violations = report.violations();
    for violation in &violations {
        writeln!(out, "VIOLATION: {violation}").map_err(written)?;
    }
    let idle = report.without_acquisitions();
    for series in &idle {
        writeln!(out, "NOTHING ACQUIRED: {series}").map_err(written)?;
    }
    Ok(violations.is_empty() && idle.is_empty())
}
