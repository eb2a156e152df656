//! One delivery over HTTP: bounded in time and size, without redirects or proxies, and only to addresses that were
//! checked.

use super::url::may_connect;
use super::{Delivery, Outcome, Targets};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

/// How much of an answer is read. `{"done":true}` needs little.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

pub(crate) struct Client(Agent);

/// Resolves as the system does, then drops forbidden addresses. The connection uses the remaining ones, so a name
/// cannot change between check and use.
#[derive(Debug)]
struct Checked {
    inner: DefaultResolver,
    targets: Targets,
}

impl Resolver for Checked {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in &*found {
            if may_connect(uri, address.ip(), self.targets) {
                allowed.push(*address);
            }
        }
        if allowed.is_empty() { Err(Error::HostNotFound) } else { Ok(allowed) }
    }
}

#[derive(serde::Deserialize)]
struct Answer {
    #[serde(default)]
    done: bool,
}

impl Client {
    pub(crate) fn new(targets: Targets) -> Self {
        let config = Config::builder()
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_response_header_size(16 << 10)
            .user_agent(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = Checked { inner: DefaultResolver::default(), targets };
        Self(Agent::with_parts(config, DefaultConnector::new(), resolver))
    }

    /// Sends it; takes at most the delivery's time.
    pub(crate) fn send(&self, url: &str, delivery: &Delivery, signature: &str) -> Outcome {
        let request = self.0.post(url).config().timeout_global(Some(delivery.timeout)).build();
        let request = request.header("content-type", "application/json").header("webhook-signature", signature);
        let mut response = match request.send(&delivery.body[..]) {
            Ok(response) => response,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        if !response.status().is_success() {
            return Outcome::Failed(format!("the receiver answered {}", response.status().as_u16()));
        }
        match response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec() {
            Ok(body) if serde_json::from_slice::<Answer>(&body).is_ok_and(|answer| answer.done) => Outcome::Done,
            Ok(_) => Outcome::Taken,
            Err(error) => Outcome::Failed(format!("the receiver's answer cannot be read: {error}")),
        }
    }
}
