//! `thalweg shape drop`.

use super::{ADMIN, is_no_server_of_shapes};
use crate::failure::Failure;
use crate::say::report;
use crate::server::{Call, Server, query_value};
use clap::Args;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg shape drop 1234-5678
  thalweg shape drop 1234-5678 --if-exists")]
pub(super) struct DropArgs {
    /// The shape's handle, as `thalweg shape ls` has it.
    handle: String,
    /// Succeed if the shape does not exist.
    #[arg(long)]
    if_exists: bool,
}

pub(super) fn run(server: &Server, args: &DropArgs) -> Result<(), Failure> {
    let call = Call::new(Method::DELETE, server.at(&format!("{ADMIN}/{}", query_value(&args.handle))));
    let mut patience = server.patience();
    let mut repeated = false;
    loop {
        match server.ask_once(&call) {
            Ok(_) => break report(|| format!("{}: dropped", args.handle)),
            // An earlier attempt, whose answer was lost, has dropped the shape.
            Err(Failure::Refused(refusal)) if refusal.is("no_shape") && (args.if_exists || repeated) => break,
            Err(failure) => patience.wait(is_no_server_of_shapes(failure))?,
        }
        repeated = true;
    }
    Ok(())
}
