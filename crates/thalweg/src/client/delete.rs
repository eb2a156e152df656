//! `thalweg stream delete`.

use super::failure::Failure;
use super::server::{Call, Server};
use super::tell;
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
    /// A stream that is not there is fine.
    #[arg(long)]
    if_exists: bool,
}

pub(crate) fn run(server: &Server, args: &DeleteArgs) -> Result<(), Failure> {
    let call = Call::new(Method::DELETE, server.stream(&args.name));
    let mut patience = server.patience();
    let mut repeated = false;
    loop {
        match server.ask_once(&call) {
            Ok(_) => break tell(|| format!("{}: deleted", args.name)),
            // An earlier attempt, whose answer was lost, has done it.
            Err(failure) if failure.is_missing() && repeated => break tell(|| format!("{}: deleted", args.name)),
            Err(failure) if failure.is_missing() && args.if_exists => {
                break tell(|| format!("{}: not there", args.name));
            }
            Err(failure) => patience.wait(failure)?,
        }
        repeated = true;
    }
    Ok(())
}
