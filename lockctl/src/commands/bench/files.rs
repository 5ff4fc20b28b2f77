//! Files of a benchmark.

use std::fs;
use std::path::Path;

use polylock_bench::report::Report;

use super::args::{FormArgs, MeasureArgs};
use crate::exit::Exit;
use crate::output::{CommandFailure, escaped, path_text};

/// Sees before the measurement that there is a place for what comes out of it.
pub(super) fn check(args: &MeasureArgs) -> Result<(), CommandFailure> {
    for file in args.json.iter().chain(&args.forms.html) {
        // A file without a directory is in the current directory.
        let is_missing = |place: &Path| !place.as_os_str().is_empty() && !place.is_dir();
        if file.parent().is_some_and(is_missing) || file.is_dir() {
            let message = format!("cannot write {}", shown(file));
            return Err(CommandFailure::new(Exit::Usage, message)
                .with_hint("name a file in a directory that exists"));
        }
    }
    for directory in args.forms.hdr.iter().chain(&args.forms.svg) {
        make(directory)?;
    }
    Ok(())
}

pub(super) fn read(file: &Path) -> Result<Report, CommandFailure> {
    let text = fs::read_to_string(file).map_err(|e| {
        let message = format!("cannot read {}", shown(file));
        CommandFailure::new(Exit::Usage, message).with_cause(&e)
    })?;
    Report::from_json(&text).map_err(|e| {
        let message = format!("{} is no report that can be read", shown(file));
        CommandFailure::new(Exit::Usage, message).with_cause(&e)
    })
}

pub(super) fn write_json(report: &Report, file: &Path) -> Result<(), CommandFailure> {
    write(file, &format!("{}\n", report.to_json()))
}

pub(super) fn write_forms(report: &Report, forms: &FormArgs) -> Result<(), CommandFailure> {
    if let Some(file) = &forms.html {
        write(file, &report.to_html())?;
    }
    if let Some(directory) = &forms.hdr {
        make(directory)?;
        for file in report.hdr_files() {
            write(&directory.join(&file.name), &file.text)?;
        }
    }
    if let Some(directory) = &forms.svg {
        make(directory)?;
        for plot in report.plots() {
            write(
                &directory.join(format!("{}.svg", plot.name)),
                &plot.to_file(),
            )?;
        }
    }
    Ok(())
}

fn make(directory: &Path) -> Result<(), CommandFailure> {
    fs::create_dir_all(directory).map_err(|e| {
        let message = format!("cannot make the directory {}", shown(directory));
        CommandFailure::new(Exit::Usage, message).with_cause(&e)
    })
}

fn write(file: &Path, text: &str) -> Result<(), CommandFailure> {
    fs::write(file, text).map_err(|e| {
        let message = format!("cannot write {}", shown(file));
        CommandFailure::new(Exit::Internal, message).with_cause(&e)
    })
}

fn shown(path: &Path) -> String {
    escaped(&path_text(path))
}
