use clap::Args;

/// Measure locks side by side, on your own servers
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {}
