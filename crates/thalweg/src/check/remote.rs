//! `thalweg check --server`: asks a running server to read all of its data now.

use super::listed::Progress;
use anyhow::{Context, bail};
use std::io::{IsTerminal, Write};
use std::time::Duration;
use ureq::Agent;

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(200);
/// A listing has some lines for each damage.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

struct Server {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

impl Server {
    fn ask(&self, method: &str) -> anyhow::Result<serde_json::Value> {
        let mut request = ureq::http::Request::builder().method(method).uri(&self.url);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(()).with_context(|| format!("`{}` is not a URL", self.url))?;
        let answer = self.agent.run(request).with_context(|| format!("cannot ask {}", self.url))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().into_with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        let body: serde_json::Value = serde_json::from_slice(&body)
            .with_context(|| format!("the server answered {status}: is it a thalweg that can be checked?"))?;
        match status {
            200..=299 => Ok(body),
            _ => bail!("the server answered {status}: {}", body["error"]["message"].as_str().unwrap_or("no reason")),
        }
    }
}

/// Fails if anything is damaged, or could not be read.
pub(super) fn run(url: &str, token: Option<&str>) -> anyhow::Result<()> {
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
    let server = Server {
        agent: config.build().into(),
        url: format!("{}{}", url.trim_end_matches('/'), crate::scrub::SERVED),
        authorization: token.filter(|token| !token.is_empty()).map(|token| format!("Bearer {token}")),
    };
    let pass = server.ask("POST")?["pass"].as_u64().context("the server's answer cannot be understood")?;
    let shows = std::io::stderr().is_terminal();
    let progress = loop {
        let answer = server.ask("GET")?;
        let progress: Progress = serde_json::from_value(answer).context("the server's answer cannot be understood")?;
        if progress.finished >= pass {
            break progress;
        }
        if shows {
            eprint!("\r  {} of {} MiB read \x1b[K", progress.read_bytes >> 20, progress.total_bytes >> 20);
            let _ = std::io::stderr().flush();
        }
        std::thread::sleep(POLL_EVERY);
    };
    if shows {
        eprint!("\r\x1b[K");
    }
    report(url, &progress)
}

fn report(url: &str, progress: &Progress) -> anyhow::Result<()> {
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
            println!("the data of {url} is whole: {} MiB read", progress.read_bytes >> 20);
            Ok(())
        }
        (0, unchecked) => bail!("{unchecked} parts of the data of {url} could not be read; try again"),
        (damage, _) => bail!("the data of {url} is damaged at {damage} places"),
    }
}
