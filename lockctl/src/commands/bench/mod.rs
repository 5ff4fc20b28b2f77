use super::App;
use crate::args::BenchArgs;
use crate::exit::Exit;
use crate::messages::Failure;

pub(super) async fn bench(_app: &App, _args: &BenchArgs) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Internal, "not there yet"))
}
