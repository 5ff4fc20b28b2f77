use super::App;
use crate::args::DoctorArgs;
use crate::exit::Exit;
use crate::messages::Failure;

pub(super) async fn doctor(_app: &App, _args: &DoctorArgs) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Internal, "not there yet"))
}
