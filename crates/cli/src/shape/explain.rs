//! `thalweg shape explain`.

use super::definition::DefinitionArgs;
use super::{ADMIN, is_no_server_of_shapes};
use crate::failure::Failure;
use crate::server::{Call, Server};
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg shape explain items --where \"owner = $1\" --param ann
  thalweg shape explain items --where \"lower(title) = 'x'\" --json

No shape is made. The table must be there: the clause is read with its columns and their types.")]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Print the server's answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Explanation {
    indexed: bool,
    keys: Vec<String>,
    evaluated: Option<String>,
    why: Option<String>,
}

pub(super) fn run(server: &Server, args: &ExplainArgs) -> Result<(), Failure> {
    let url = server.at(&format!("{ADMIN}/explain?{}", args.definition.query(&[])));
    let mut answer = server.ask(&Call::new(Method::GET, url)).map_err(is_no_server_of_shapes)?;
    let said: Box<RawValue> =
        serde_json::from_reader(answer.body()).map_err(|error| Failure::Strange(format!("an explanation: {error}")))?;
    if args.json {
        println!("{}", said.get());
        return Ok(());
    }
    let said: Explanation = serde_json::from_str(said.get()).map_err(|error| Failure::Strange(error.to_string()))?;
    println!("{}", if said.indexed { "indexed" } else { "not indexed: evaluated for each change of the table" });
    for key in &said.keys {
        println!("key        {key}");
    }
    if let Some(evaluated) = &said.evaluated {
        println!("evaluated  {evaluated}");
    }
    if let Some(why) = &said.why {
        println!("{why}");
    }
    Ok(())
}
