//! `thalweg shape create`.

use super::definition::DefinitionArgs;
use super::turns::{Turn, Turns, is_control};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::server::Server;
use clap::Args;
use serde_json::value::RawValue;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg shape create items
  thalweg shape create items --columns id,title --replica full
  thalweg shape create items --where \"state = $1\" --param open
  thalweg shape create items --json | jq -r .handle

A shape that is there already is fine. The rows are read once to the present end, to see that they are all there; they are not shown.")]
pub(super) struct CreateArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Do not wait for all rows: return as soon as the first rows are there.
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// How often a shape may be dropped under our hands.
const RESTARTS_MAX: u32 = 5;

pub(super) fn run(server: &Server, args: &CreateArgs) -> Result<(), Failure> {
    let mut turns = Turns::new(server, &args.definition, "-1", None);
    let mut progress = Progress::new(None, false);
    let (mut rows, mut bytes, mut restarts) = (0_u64, 0_u64, 0);
    loop {
        match turns.next()? {
            Turn::Messages(messages) => {
                for message in messages.iter().filter(|message| !is_control(message)) {
                    rows += 1;
                    bytes += message.get().len() as u64;
                    progress.add(message.get().len() as u64);
                }
            }
            Turn::MustRefetch if restarts == RESTARTS_MAX => {
                return Err(Failure::Strange(format!("the shape was dropped {restarts} times during this command")));
            }
            Turn::MustRefetch => {
                restarts += 1;
                (rows, bytes) = (0, 0);
                turns.restart("-1");
                continue;
            }
        }
        if args.no_wait || turns.is_up_to_date() {
            break;
        }
    }
    drop(progress);
    let schema = turns.schema.clone().unwrap_or_else(|| "{}".to_owned());
    if args.json {
        // Columns in the order of the table, as the server has them.
        let schema: Box<RawValue> = serde_json::from_str(&schema).map_err(|e| Failure::Strange(e.to_string()))?;
        let shape = serde_json::json!({
            "table": args.definition.table(), "handle": turns.handle(), "offset": turns.offset(),
            "complete": turns.is_up_to_date(), "messages": rows, "bytes": bytes,
        });
        let text = shape.to_string();
        println!("{},\"schema\":{}}}", text.trim_end_matches('}'), schema.get());
        return Ok(());
    }
    println!("handle    {}", turns.handle());
    println!("offset    {}", turns.offset());
    println!("messages  {rows} ({bytes} bytes){}", if turns.is_up_to_date() { "" } else { ", more to come" });
    println!("schema    {schema}");
    Ok(())
}
