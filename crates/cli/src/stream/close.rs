//! `thalweg stream close`.

use crate::failure::Failure;
use crate::say::report;
use crate::server::{Call, Server};
use clap::Args;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream close notes
  echo 'last words' | thalweg stream append notes --close")]
pub(crate) struct CloseArgs {
    /// The stream.
    name: String,
}

pub(crate) fn run(server: &Server, args: &CloseArgs) -> Result<(), Failure> {
    close(server, &args.name)?;
    report(|| format!("{}: closed", args.name));
    Ok(())
}

/// Closing a closed stream succeeds, so that the request may be repeated.
pub(crate) fn close(server: &Server, name: &str) -> Result<(), Failure> {
    server.ask(&Call::new(Method::POST, server.stream(name)).header("stream-closed", "true")).map(drop)
}
