//! `thalweg check` of a running server, which reads all of its data now.

use anyhow::{Context, bail};
use std::io::Read;
use std::time::Duration;
use thalweg_cli::{Call, PATIENCE, Progress, Server, Target, human};
use thalweg_host::listed;
use ureq::http::Method;

const POLL_EVERY: Duration = Duration::from_millis(200);
/// A listing has some lines for each damage.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

fn ask(server: &Server, method: Method) -> anyhow::Result<serde_json::Value> {
    let mut answer = server.ask(&Call::new(method, server.at(thalweg_host::scrub::SERVED)))?;
    let mut body = Vec::new();
    answer.body().take(ANSWER_BYTES_MAX).read_to_end(&mut body).context("the answer was cut off")?;
    serde_json::from_slice(&body)
        .context("the server's answer cannot be understood: is it a thalweg that can be checked?")
}

/// Asks for a pass; its number.
fn begin(server: &Server) -> anyhow::Result<u64> {
    ask(server, Method::POST)?["pass"].as_u64().context("the server's answer cannot be understood")
}

/// Fails if anything is damaged, or could not be read.
pub(super) fn run(target: &Target) -> anyhow::Result<()> {
    let server = Server::new(target, Some(PATIENCE))?;
    let mut pass = begin(&server)?;
    let mut shown = Progress::new(None, false);
    loop {
        let progress: listed::Progress =
            serde_json::from_value(ask(&server, Method::GET)?).context("the server's answer cannot be understood")?;
        if progress.asked < pass {
            // The server was started again since, and knows nothing of the request.
            pass = begin(&server)?;
        } else if progress.finished >= pass {
            drop(shown);
            return report(server.base(), &progress);
        }
        shown.set_total(progress.total_bytes);
        shown.set(progress.read_bytes);
        std::thread::sleep(POLL_EVERY);
    }
}

fn report(url: &str, progress: &listed::Progress) -> anyhow::Result<()> {
    for damage in &progress.damage {
        println!("{damage}");
    }
    if progress.counts.left_out > 0 {
        println!("and {} more damaged places", progress.counts.left_out);
    }
    for unchecked in &progress.unchecked {
        println!("{unchecked}");
    }
    let unchecked = progress.unchecked.len() as u64 + progress.unchecked_more;
    match (progress.counts.damage, unchecked) {
        (0, 0) => {
            println!("the data of {url} is whole: {} read", human::size(progress.read_bytes));
            Ok(())
        }
        (0, unchecked) => bail!("{unchecked} parts of the data of {url} could not be read; try again"),
        (damage, _) => bail!("the data of {url} is damaged at {damage} places"),
    }
}
