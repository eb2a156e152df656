//! `thalweg stream fork`.

use crate::failure::Failure;
use crate::server::{self, Call, Server, encoded};
use clap::Args;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream fork chat retry              all that is there now
  thalweg stream fork chat retry --offset start --sub-offset 3
                                              the first three messages of a
                                              JSON stream
  thalweg stream fork chat retry --offset 0000000000000064_0000000000000120")]
pub(crate) struct ForkArgs {
    /// The stream to begin as.
    source: String,
    /// The new stream.
    name: String,
    /// Take content up to this offset of the source: start, or an offset that the server gave [default: its end].
    #[arg(long, value_name = "start|OFFSET", allow_hyphen_values = true)]
    offset: Option<String>,
    /// Begin this many messages (JSON) or bytes (else) past it.
    #[arg(long, value_name = "N", requires = "offset")]
    sub_offset: Option<u64>,
}

pub(crate) fn run(server: &Server, args: &ForkArgs) -> Result<(), Failure> {
    let source = args.source.strip_prefix("/v1/stream/").unwrap_or(&args.source);
    let mut call = Call::new(Method::PUT, server.stream(&args.name))
        .header("stream-forked-from", format!("/v1/stream/{}", encoded(source)));
    if let Some(offset) = &args.offset {
        call = call.header("stream-fork-offset", server::offset(offset));
    }
    if let Some(n) = args.sub_offset {
        call = call.header("stream-fork-sub-offset", n.to_string());
    }
    let answer = server.ask(&call)?;
    let word = if answer.status() == 201 || answer.repeated { "created" } else { "exists already" };
    eprintln!("{}: {word}", args.name);
    Ok(())
}
