use clap::Args;

/// Tell whether a server is fit for locks: exit 0 if it is, 1 if something is wrong
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Lock services to look at [default: that of --backend]
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<String>,
}
