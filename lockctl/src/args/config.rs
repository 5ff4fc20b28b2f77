use clap::Args;

/// Check or show a configuration file, or print its schema
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {}
