//! Authentication and authorization: bearer tokens in front of every route.
//!
//! `routes` says which rights a request needs, `tokens` and `signed` identify the sender, `scope` compares the
//! two, and `denied` is the refusal. No part of a secret is kept, logged or sent back. With auth off nothing is
//! checked, except for shapes: a token in place of their secret names the part of each table that the request may read,
//! and the engine enforces that.
//!
//! A check costs one SHA-256 of a token of some sixty bytes (a signed token: an HMAC and a little JSON) and takes no
//! lock. That is cheaper than a cache that several threads share.

mod bearer;
mod denied;
mod issue;
mod routes;
mod scope;
mod secret;
mod signed;
mod tokens;

pub use scope::{Prefix, Rights, Scope};
pub use signed::{Claim, KEY_FILE, Key, check_ttl};
pub use tokens::{end as expiry, make as make_token};

use crate::Needs;
use crate::config::{AuthMode, Config};
use anyhow::bail;
use arc_swap::ArcSwap;
use bearer::{Credential, CredentialSource};
pub use denied::DeniedCounts;
use denied::{Denials, Denied};
#[cfg(test)]
pub use routes::need;
pub(crate) use routes::need_of_host;
pub use routes::{Need, need_of_admin, need_of_streams};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use thalweg_http::{Method, Request, Response};
use thalweg_shapes::Granted;
use tokens::Tokens;

/// The route that issues signed tokens.
const ISSUE_PATH: &str = "/v1/token";

/// The guard in front of the routes. Tokens may be replaced while it works.
pub struct Auth {
    /// Every route requires a token; otherwise only requests for shapes are checked.
    everywhere: bool,
    /// Path of the token file. `None`: there are no tokens, and requests that need one are refused.
    path: Option<PathBuf>,
    data: PathBuf,
    known: ArcSwap<Known>,
    denials: Denials,
}

struct Known {
    tokens: Tokens,
    key: Key,
}

/// Identity and rights of a valid credential.
struct Bearer<'a> {
    rights: Cow<'a, Rights>,
    /// The id of a token of the file; none for a signed one.
    id: Option<String>,
    /// When it ends, in milliseconds since the Unix epoch.
    expires: Option<u64>,
}

/// A guard that the settings ask for.
struct GuardConfig<'a> {
    /// The file of its tokens.
    tokens: Option<&'a Path>,
    /// Every route requires a token; otherwise only requests for shapes are checked.
    everywhere: bool,
}

impl Auth {
    /// The guard by the settings, if any. Refuses to leave streams open to other machines unless the settings say so
    /// explicitly.
    pub fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        Self::guard_config(config)?.map(|guard_config| Self::open(guard_config, &config.data)).transpose()
    }

    /// Whether [`Auth::of`] can succeed: reads the file of tokens, and makes nothing.
    pub fn check(config: &Config) -> anyhow::Result<()> {
        if let Some(GuardConfig { tokens: Some(path), .. }) = Self::guard_config(config)? {
            Tokens::read(path)?;
        }
        Ok(())
    }

    /// The guard that the settings ask for, if any.
    fn guard_config(config: &Config) -> anyhow::Result<Option<GuardConfig<'_>>> {
        let given = !config.tokens.as_os_str().is_empty();
        let for_shapes = config.serves_shapes().then_some(GuardConfig { tokens: None, everywhere: false });
        match config.auth {
            AuthMode::Off if given => bail!("--auth off and --tokens contradict each other: leave one of them out"),
            AuthMode::Off => Ok(for_shapes),
            AuthMode::Auto if !given && config.is_local() => Ok(for_shapes),
            // Shapes have a secret of their own. All other routes are closed, so that a server can serve shapes alone.
            AuthMode::Auto if !given && config.serves_shapes() => {
                tracing::info!("without --tokens everything but shapes is closed: streams, /metrics and /v1/admin");
                Ok(Some(GuardConfig { tokens: None, everywhere: true }))
            }
            AuthMode::Auto if !given => bail!(
                "{} can be reached from other machines, and there are no tokens: make one with `thalweg token new --name \
                 app --admin '*'`, put its lines into a file and name that with --tokens FILE; or say --auth off to let everybody \
                 read, write and delete everything",
                config.listen
            ),
            AuthMode::On if !given => bail!("--auth on needs --tokens FILE; `thalweg token new` makes a token for it"),
            AuthMode::On | AuthMode::Auto => Ok(Some(GuardConfig { tokens: Some(&config.tokens), everywhere: true })),
        }
    }

    fn open(GuardConfig { tokens: path, everywhere }: GuardConfig<'_>, data: &Path) -> anyhow::Result<Self> {
        let known =
            Known { tokens: path.map(Tokens::read).transpose()?.unwrap_or_default(), key: Key::load(data, true)? };
        if let Some(path) = path.filter(|_| known.tokens.len() == 0) {
            tracing::warn!(path = %path.display(), "the token file is empty: every request is refused");
        }
        Ok(Self {
            everywhere,
            path: path.map(Path::to_owned),
            data: data.to_owned(),
            known: ArcSwap::from_pointee(known),
            denials: Denials::default(),
        })
    }

    /// Whether every route asks for a token.
    pub fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// Files to watch for changes.
    pub fn files(&self) -> Vec<PathBuf> {
        self.path.iter().cloned().chain([self.data.join(signed::KEY_FILE)]).collect()
    }

    /// Reads the files again. On an error the earlier tokens stay in force.
    pub fn reload(&self) -> anyhow::Result<()> {
        let tokens = self.path.as_deref().map(Tokens::read).transpose()?.unwrap_or_default();
        let key = Key::load(&self.data, true)?;
        let count = tokens.len();
        self.known.store(std::sync::Arc::new(Known { tokens, key }));
        tracing::info!(tokens = count, "reloaded the tokens");
        Ok(())
    }

    /// Takes the key that all nodes sign with: see [`Key::share`].
    pub fn share_key(&self, settle: impl FnOnce(String) -> anyhow::Result<String>) -> anyhow::Result<()> {
        if Key::share(&self.data, settle)? { self.reload() } else { Ok(()) }
    }

    /// The answer to a request that is not to reach the routes: a refusal, or a signed token. `None` lets it pass.
    /// `needs`: of its route.
    pub fn answer(&self, request: &Request<'_>, needs: Needs, now_ms: u64) -> Option<Response> {
        if !self.everywhere {
            return None;
        }
        let known = self.known.load();
        if request.path == ISSUE_PATH && request.method == Method::Options {
            return Some(issue::preflight());
        }
        if request.path == ISSUE_PATH {
            let issued =
                known.bearer(request, now_ms).and_then(|bearer| issue::answer(&known, &bearer, request, now_ms));
            return Some(issued.unwrap_or_else(|denied| self.denials.response(&denied)));
        }
        known.admit(request, needs, now_ms).err().map(|denied| self.denials.response(&denied))
    }

    /// Refusal of a request from its head alone. `None` passes the request on to [`Auth::answer`].
    pub fn on_head(&self, head: &Request<'_>, needs: Needs, now_ms: u64) -> Option<Response> {
        if !self.everywhere {
            return None;
        }
        let known = self.known.load();
        let admitted = if head.path == ISSUE_PATH && head.method != Method::Options {
            known.bearer(head, now_ms).map(drop)
        } else {
            known.admit(head, needs, now_ms)
        };
        admitted.err().map(|denied| self.denials.response(&denied))
    }

    /// Rights of a request for shapes, if it carries a token; `None` if it carries none. `open`: shapes need no secret,
    /// so a token that this server did not make is ignored.
    pub fn shapes(
        &self,
        request: &Request<'_>,
        now_ms: u64,
        open: bool,
    ) -> Result<Option<Granted>, thalweg_shapes::Denied> {
        let foreign = |found: &Result<Credential<'_>, Denied>| match found {
            Ok(credential) => ![tokens::MARK, signed::MARK].iter().any(|mark| credential.token.starts_with(mark)),
            Err(denied) => *denied != Denied::Repeated(bearer::PARAMETER),
        };
        let found = bearer::find(request);
        if matches!(found, Err(Denied::Nobody)) || (open && foreign(&found)) {
            return Ok(None);
        }
        let known = self.known.load();
        let granted = known.bearer(request, now_ms).and_then(|Bearer { rights, expires, .. }| {
            let grants = rights.into_owned().shapes;
            if grants.is_empty() { Err(Denied::Shapes) } else { Ok(Granted { grants, expires_ms: expires }) }
        });
        granted.map(Some).map_err(|denied| self.denials.to_shapes(&denied))
    }

    /// Refusals since the start, by their code.
    pub fn denied(&self) -> DeniedCounts {
        self.denials.counts()
    }
}

impl Known {
    fn admit(&self, request: &Request<'_>, needs: Needs, now_ms: u64) -> Result<(), Denied> {
        let need = needs(request);
        if matches!(need, Need::Nothing | Need::OwnToken) {
            return Ok(());
        }
        let rights = self.bearer(request, now_ms)?.rights;
        match need {
            Need::Nothing | Need::OwnToken | Need::AnyToken => Ok(()),
            Need::Streams(scope, name, sources) => {
                if !rights.allow(scope, &name) {
                    return Err(Denied::Scope(scope, format!("`{name}`")));
                }
                match sources.iter().find(|source| !rights.allow(scope::Scope::Read, source)) {
                    Some(source) => {
                        Err(Denied::Scope(scope::Scope::Read, format!("`{source}`, the source of the fork")))
                    }
                    None => Ok(()),
                }
            }
            Need::Beginning(scope, text) if rights.allow_beginning(scope, &text) => Ok(()),
            Need::Beginning(scope, text) => {
                Err(Denied::Scope(scope, format!("all streams whose names begin with `{text}`")))
            }
            Need::Everything(scope) if rights.allow_all(scope, &Prefix::everything()) => Ok(()),
            Need::Everything(scope) => Err(Denied::Scope(scope, "everything, `*`".to_owned())),
        }
    }

    /// Identity and rights of the request's sender.
    fn bearer(&self, request: &Request<'_>, now_ms: u64) -> Result<Bearer<'_>, Denied> {
        let Credential { token, source } = bearer::find(request)?;
        if source == CredentialSource::Query && request.headers.get("sec-fetch-mode") == Some(b"navigate") {
            return Err(Denied::Opened);
        }
        if source != CredentialSource::Header {
            if !matches!(request.method, Method::Get | Method::Head) {
                return Err(Denied::OnlyForReads);
            }
            if !token.starts_with(signed::MARK) {
                return Err(Denied::OnlySigned);
            }
        }
        if token.starts_with(signed::MARK) { self.signed(&token, now_ms) } else { self.listed(&token, now_ms) }
    }

    fn listed(&self, token: &str, now_ms: u64) -> Result<Bearer<'_>, Denied> {
        let (id, token) = self.tokens.find(token).ok_or(Denied::Unknown)?;
        if token.expired(now_ms) {
            return Err(Denied::Expired);
        }
        Ok(Bearer { rights: Cow::Borrowed(&token.rights), id: Some(id.to_owned()), expires: token.expires })
    }

    fn signed(&self, token: &str, now_ms: u64) -> Result<Bearer<'_>, Denied> {
        let claim = self.key.verify(token).ok_or(Denied::Unknown)?;
        if claim.expires <= now_ms {
            return Err(Denied::Expired);
        }
        let (mut rights, mut expires) = (claim.rights(), claim.expires);
        if let Some(parent) = &claim.parent {
            let parent = self.tokens.get(parent).ok_or(Denied::Unknown)?;
            let streams = claim.streams.as_ref();
            if parent.expired(now_ms) || !streams.is_none_or(|(scope, prefix)| parent.rights.allow_all(*scope, prefix))
            {
                return Err(Denied::Expired);
            }
            rights.shapes = rights.shapes.under(&parent.rights.shapes).map_err(|_| Denied::Expired)?;
            expires = expires.min(parent.expires.unwrap_or(u64::MAX));
        }
        Ok(Bearer { rights: Cow::Owned(rights), id: None, expires: Some(expires) })
    }
}

#[cfg(test)]
mod tests;
