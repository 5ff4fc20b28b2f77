//! Colours, and the log of the library for `-v`.

use anstream::ColorChoice;
use tracing_subscriber::EnvFilter;

use crate::args::{Color, GlobalArgs};

/// Sets up what the options ask for.
pub(crate) fn start(args: &GlobalArgs) {
    match args.color {
        Color::Always => ColorChoice::Always.write_global(),
        Color::Auto => {}
        Color::Never => ColorChoice::Never.write_global(),
    }
    let level = match args.verbose {
        0 => return,
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::new(format!(
        "warn,lock_core={level},lock_sql={level},polylock={level}"
    ));
    let coloured = anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(coloured);
    // A second call would fail, and there is none.
    drop(log.with_writer(std::io::stderr).try_init());
}
