//! The server that a command asks: its address, the client's credentials, and retries while they may help.

use crate::failure::{Failure, Refusal};
use crate::target::{Chosen, Target};
use std::path::Path;
use std::time::{Duration, Instant};
use ureq::http::{self, Method};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be silent. Longer than a long-poll, which the server ends.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Bytes that the client reads of a refusal.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;
/// Between the first two attempts; doubled from then on.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long a command that is to end keeps trying a server that does not answer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connection kept alive between requests, and the patience of its user.
pub struct Server {
    agent: Agent,
    /// The server's URL without a slash at its end.
    base: String,
    token: Option<String>,
    /// Shapes' secret of requests, if any.
    secret: Option<String>,
    /// How long to retry. `None`: for ever.
    retry_for: Option<Duration>,
}

/// One request, in a form that can be sent again.
pub struct Call<'a> {
    pub method: Method,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'a [u8],
}

impl<'a> Call<'a> {
    /// A request without headers and body.
    pub fn new(method: Method, url: String) -> Self {
        Self { method, url, headers: Vec::new(), body: &[] }
    }

    /// The request with one more header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The request with a body.
    pub fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }
}

/// An answer with a status of 200 to 299.
pub struct Answer {
    response: http::Response<Body>,
    /// The request was sent more than once, so that an earlier one may have been served.
    pub(crate) repeated: bool,
}

impl Answer {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The value of a header, if there is one and it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn says(&self, name: &str) -> bool {
        self.header(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The body, without a bound: the caller bounds what it reads.
    pub fn body(&mut self) -> impl std::io::Read {
        self.response.body_mut().with_config().limit(u64::MAX).reader()
    }
}

impl Server {
    /// The server that flags, environment and contexts name. `patience`: how long to retry an unresponsive server if no
    /// flag says so; `None`: for ever.
    pub fn new(target: &Target, patience: Option<Duration>) -> Result<Self, Failure> {
        Self::of(target.choose(None)?, target.retry_for.map(|span| span.0).or(patience))
    }

    /// A server with the secret of its shapes.
    pub(crate) fn of_shapes(
        target: &Target,
        secret: Option<&str>,
        patience: Option<Duration>,
    ) -> Result<Self, Failure> {
        Self::of(target.choose(secret)?, target.retry_for.map(|span| span.0).or(patience))
    }

    fn of(chosen: Chosen, retry_for: Option<Duration>) -> Result<Self, Failure> {
        let Chosen { server, token, ca, secret, .. } = chosen;
        let base = whole_url(&server)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("thalweg/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(SILENCE_MAX))
            .timeout_per_write(Some(SILENCE_MAX))
            .tls_config(TlsConfig::builder().root_certs(roots(ca.as_deref())?).build());
        // A proxy for the outside world does not know our own machine.
        if base.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(is_this_machine)) {
            config = config.proxy(None);
        }
        if token.as_ref().is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(Failure::Local(
                "the token holds characters that no token has, such as a line break".to_owned(),
            ));
        }
        Ok(Self { agent: Agent::new_with_config(config.build()), base, token, secret, retry_for })
    }

    /// The URL of the server, without a slash at the end.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// The URL of a path of the server.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The URL of a stream. A whole URL is used unchanged.
    pub(crate) fn stream(&self, name: &str) -> String {
        if name.starts_with("http://") || name.starts_with("https://") {
            return name.to_owned();
        }
        let name = name.strip_prefix("/v1/stream/").unwrap_or(name);
        format!("{}/v1/stream/{}", self.base, encoded(name))
    }

    /// Asks once. Fails if there is no answer, and with the refusal if the status is not 200 to 299.
    pub fn ask_once(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let mut request = http::Request::builder().method(call.method.clone()).uri(&call.url);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        // The token is for the named server only.
        if let Some(token) = &self.token
            && call.url.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'))
        {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let wrong = |error: http::Error| Failure::Local(format!("this cannot be sent to {}: {error}", call.url));
        let sent = match call.method {
            // Requests of these methods have no body, not even an empty one.
            Method::GET | Method::HEAD | Method::DELETE => self.agent.run(request.body(()).map_err(wrong)?),
            _ => self.agent.run(request.body(call.body).map_err(wrong)?),
        };
        let mut response = sent.map_err(|error| self.failed(call, error))?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(Answer { response, repeated: false });
        }
        if (300..400).contains(&status) {
            let to = response.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            return Err(Failure::Strange(format!("{status} sends us to {to}; give that as --server if it is right")));
        }
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let (retry_after, handle) = (header("retry-after"), header("electric-handle"));
        let body = response.body_mut().with_config().limit(REFUSAL_BYTES_MAX).read_to_vec().unwrap_or_default();
        if status == 400 && self.base.starts_with("http://") && wants_tls(&body) {
            return Err(Failure::Local(format!("{} speaks TLS: use https://", self.base)));
        }
        Err(Failure::Refused(Refusal { handle, ..Refusal::read(status, retry_after.as_deref(), &body) }))
    }

    /// Why no answer arrived.
    fn failed(&self, call: &Call<'_>, error: ureq::Error) -> Failure {
        let base = &self.base;
        let handshake = match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => return Failure::Local(format!("{}: {error}", call.url)),
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => error.to_string(),
            // ureq reports TLS errors of rustls as this kind.
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => error.to_string(),
            ureq::Error::Io(error) => return unreachable(base, &error.to_string()),
            ureq::Error::HostNotFound => return unreachable(base, NO_SUCH_HOST[0]),
            error => return unreachable(base, &error.to_string()),
        };
        Failure::Local(if handshake.contains("InvalidContentType") {
            format!("{base} does not speak TLS: use http://")
        } else if handshake.contains("CaUsedAsEndEntity") {
            format!(
                "no trust in {base}: its certificate is one of an authority (CA:TRUE), as `openssl req -x509` makes them; make one with \
                 -addext basicConstraints=critical,CA:FALSE"
            )
        } else {
            format!("no trust in {base}: {handshake}; --ca FILE names another authority")
        })
    }

    /// Sends the request until an answer or a final refusal arrives, or until patience ends. Only for requests that may
    /// be served twice.
    pub fn ask(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let mut patience = self.patience();
        let mut repeated = false;
        loop {
            match self.ask_once(call) {
                Ok(answer) => return Ok(Answer { repeated, ..answer }),
                Err(failure) => patience.wait(failure)?,
            }
            repeated = true;
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { limit: self.retry_for, since: None, next: BACKOFF }
    }
}

/// How long to retry without an answer.
pub(crate) struct Patience {
    limit: Option<Duration>,
    since: Option<Instant>,
    next: Duration,
}

impl Patience {
    /// Waits before the next attempt; returns the failure if a retry cannot help or time has run out.
    pub(crate) fn wait(&mut self, failure: Failure) -> Result<(), Failure> {
        let Some(asked) = failure.passes() else { return Err(failure) };
        // Many clients that lost one server must not reconnect at one moment.
        let jittered = self.next.mul_f64(0.5 + 0.5 * random_fraction());
        let wait = asked.map_or(jittered, |asked| asked.max(jittered));
        let begins = self.since.is_none();
        let spent = self.since.get_or_insert_with(Instant::now).elapsed();
        if self.limit.is_some_and(|limit| spent + wait > limit) {
            return Err(failure);
        }
        if begins {
            eprintln!("thalweg: {failure}; trying again");
        }
        std::thread::sleep(wait);
        self.next = (self.next * 2).min(BACKOFF_MAX);
        Ok(())
    }

    /// An answer arrived: the time limit begins again.
    pub(crate) fn restore(&mut self) {
        (self.since, self.next) = (None, BACKOFF);
    }
}

/// From 0 to 1. Without entropy all clients wait equally long, which does no harm.
fn random_fraction() -> f64 {
    f64::from(random() as u32) / f64::from(u32::MAX)
}

pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(bytes)
}

/// Resolvers' messages for a name that does not exist. Other failures of resolvers may pass.
const NO_SUCH_HOST: [&str; 2] = ["Name or service not known", "No address associated with hostname"];

fn unreachable(base: &str, why: &str) -> Failure {
    if NO_SUCH_HOST.iter().any(|no| why.contains(no)) {
        return Failure::UnknownHost { server: base.to_owned() };
    }
    Failure::Unreachable { server: base.to_owned(), why: why.to_owned() }
}

/// Whether the answer is that of a port for TLS to a request without: ours, nginx's, Go's.
fn wants_tls(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    ["speaks TLS", "sent to HTTPS port", "to an HTTPS server"].iter().any(|words| text.contains(words))
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The URL of a server, without a slash at its end. `HOST:PORT` is `http` on this machine and `https` elsewhere, so
/// that no token travels in the clear because a scheme was left out.
pub(crate) fn whole_url(text: &str) -> Result<String, Failure> {
    let not_a_server =
        || Failure::Local(format!("`{text}` is not a server; write http://HOST:PORT, https://HOST or HOST:PORT"));
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        let (host, port) = text.rsplit_once(':').ok_or_else(not_a_server)?;
        port.parse::<u16>().map_err(|_| not_a_server())?;
        format!("{}://{text}", if is_this_machine(host) { "http" } else { "https" })
    };
    let url = url.trim_end_matches('/').to_owned();
    let uri: http::Uri = url.parse().map_err(|_| not_a_server())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(url),
        _ => Err(not_a_server()),
    }
}

fn roots(file: Option<&Path>) -> Result<RootCerts, Failure> {
    let Some(path) = file else { return Ok(RootCerts::PlatformVerifier) };
    let wrong = |why: String| Failure::Local(format!("--ca {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut trusted: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| wrong(error.to_string()))? {
            trusted.push(certificate);
        }
    }
    if trusted.is_empty() { Err(wrong("there is no certificate in it".to_owned())) } else { Ok(trusted.into()) }
}

/// An offset as people write it: `start`, or what the server gave.
pub(crate) fn offset(text: &str) -> &str {
    if text == "start" { "-1" } else { text }
}

/// A name as a path. Percent-encoded parts stay, as in the names that `ls` prints.
pub(crate) fn encoded(name: &str) -> String {
    let bytes = name.as_bytes();
    let escaped = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    percent_encoded(bytes, |at, byte| b"-._~/".contains(&byte) || (byte == b'%' && escaped(at)))
}

/// Any text as a value in a query.
pub(crate) fn query_value(value: &str) -> String {
    percent_encoded(value.as_bytes(), |_, byte| b"-._~".contains(&byte))
}

fn percent_encoded(bytes: &[u8], stays: impl Fn(usize, u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        if byte.is_ascii_alphanumeric() || stays(at, byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<Server, Failure> {
        Server::of(Chosen { server: url.to_owned(), ..Chosen::default() }, Some(Duration::ZERO))
    }

    #[test]
    fn a_name_becomes_a_path_and_a_url_stays_as_it_is() {
        let server = server("http://127.0.0.1:4437/").ok().unwrap();
        assert_eq!(server.stream("a/b c%?"), "http://127.0.0.1:4437/v1/stream/a/b%20c%25%3F");
        assert_eq!(server.stream("a%20b%2"), "http://127.0.0.1:4437/v1/stream/a%20b%252");
        assert_eq!(server.stream("/v1/stream/a"), "http://127.0.0.1:4437/v1/stream/a");
        assert_eq!(server.stream("https://example.org/x%20y"), "https://example.org/x%20y");
        assert_eq!(query_value("a/ä%20"), "a%2F%C3%A4%2520");
    }

    #[test]
    fn what_is_no_server_is_refused_with_the_right_form() {
        for text in ["ftp://a", "", "http://", "nonsense", "host:", "host:http", ":80"] {
            let refused = server(text).err().unwrap().to_string();
            assert!(refused.contains("http://HOST:PORT"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_host_and_port_are_a_server_and_a_token_never_leaves_the_machine_in_the_clear_for_lack_of_a_scheme() {
        for (text, url) in [
            ("127.0.0.1:4437", "http://127.0.0.1:4437"),
            ("localhost:1", "http://localhost:1"),
            ("[::1]:4437", "http://[::1]:4437"),
            ("streams.example.org:4437", "https://streams.example.org:4437"),
            ("http://a:1//", "http://a:1"),
        ] {
            assert_eq!(whole_url(text).unwrap(), url);
        }
    }

    #[test]
    fn patience_ends_and_is_not_spent_on_what_stays() {
        let mut patience = server("http://127.0.0.1:1").ok().unwrap().patience();
        let gone = || Failure::Unreachable { server: String::new(), why: String::new() };
        assert!(patience.wait(gone()).is_err(), "no time at all");
        assert!(patience.wait(Failure::Local(String::new())).is_err());
        patience.limit = Some(Duration::from_secs(1));
        assert!(patience.wait(gone()).is_ok());
        patience.restore();
        assert!(patience.since.is_none());
    }
}
