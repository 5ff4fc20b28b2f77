use super::App;
use crate::args::ConfigArgs;
use crate::exit::Exit;
use crate::messages::Failure;

pub(super) async fn config(_app: &App, _args: &ConfigArgs) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Internal, "not there yet"))
}
