//! `thalweg stream delete`.

use crate::failure::Failure;
use crate::say::report;
use crate::server::{Call, Server};
use clap::Args;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream delete notes
  thalweg stream delete notes --if-exists && thalweg stream create notes")]
pub(crate) struct DeleteArgs {
    /// The stream.
    name: String,
    /// Succeed if the stream does not exist.
    #[arg(long)]
    if_exists: bool,
}

pub(crate) fn run(server: &Server, args: &DeleteArgs) -> Result<(), Failure> {
    let call = Call::new(Method::DELETE, server.stream(&args.name));
    let mut patience = server.patience();
    let mut repeated = false;
    loop {
        match server.ask_once(&call) {
            Ok(_) => break report(|| format!("{}: deleted", args.name)),
            // An earlier attempt, whose answer was lost, has deleted the stream.
            Err(failure) if failure.is_missing() && repeated => break report(|| format!("{}: deleted", args.name)),
            Err(failure) if failure.is_missing() && args.if_exists => {
                break report(|| format!("{}: not there", args.name));
            }
            Err(failure) => patience.wait(failure)?,
        }
        repeated = true;
    }
    Ok(())
}
