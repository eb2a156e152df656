//! Who may do what: bearer tokens in front of every route.
//!
//! [`routes`] says what a request needs, [`tokens`] and [`signed`] who sends it, [`scope`] whether the two meet, [`denied`] what is said
//! if they do not. Nothing of a secret is kept, logged or sent back. With auth off none of this is asked, but for shapes: a token that
//! comes in place of their secret says which part of which table may be read, and the engine keeps to that.
//!
//! A check costs one SHA-256 of a token of some sixty bytes (a signed one: an HMAC and a little JSON) and no lock: less than what a cache
//! that several threads share would save.

mod bearer;
mod command;
mod denied;
mod issue;
mod routes;
mod scope;
mod secret;
mod signed;
mod tokens;

pub(crate) use command::TokenArgs;
pub(crate) use command::run as run_command;
pub(crate) use signed::KEY_FILE;

use crate::config::{AuthMode, Config};
use crate::host::Needs;
use anyhow::bail;
use arc_swap::ArcSwap;
use bearer::{Credential, Way};
pub(crate) use denied::DeniedCounts;
use denied::{Denials, Denied};
#[cfg(test)]
pub(crate) use routes::need;
pub(crate) use routes::{Need, need_of_admin, need_of_host, need_of_streams};
use scope::{Prefix, Rights};
use signed::Key;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use thalweg_shapes::Granted;
use thalweg_wire::http::{Method, Request, Response};
use tokens::Tokens;

/// Where signed tokens are asked for.
const ISSUE_PATH: &str = "/v1/token";

/// The guard in front of the routes. Tokens may be replaced while it works.
pub(crate) struct Auth {
    /// Every route asks for a token; else only requests for shapes are looked at.
    everywhere: bool,
    /// Without it there are none: what needs one is refused.
    path: Option<PathBuf>,
    data: PathBuf,
    known: ArcSwap<Known>,
    denials: Denials,
}

struct Known {
    tokens: Tokens,
    key: Key,
}

/// What a good credential stands for.
struct Bearer<'a> {
    rights: Cow<'a, Rights>,
    /// The id of a token of the file; none for a signed one.
    id: Option<String>,
    /// When it ends, in milliseconds since the Unix epoch.
    expires: Option<u64>,
}

/// A guard that the settings ask for.
struct Wanted<'a> {
    /// The file of its tokens.
    tokens: Option<&'a Path>,
    /// Every route asks for a token; else only requests for shapes are looked at.
    everywhere: bool,
}

impl Auth {
    /// The guard that the settings ask for, if any. Refuses to leave streams open to other machines unless that is asked for.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        Self::wanted(config)?.map(|wanted| Self::open(wanted, &config.data)).transpose()
    }

    /// Whether [`Auth::of`] can succeed: reads the file of tokens, and makes nothing.
    pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
        if let Some(Wanted { tokens: Some(path), .. }) = Self::wanted(config)? {
            Tokens::read(path)?;
        }
        Ok(())
    }

    /// The guard that the settings ask for, if any.
    fn wanted(config: &Config) -> anyhow::Result<Option<Wanted<'_>>> {
        let given = !config.tokens.as_os_str().is_empty();
        let for_shapes = config.serves_shapes().then_some(Wanted { tokens: None, everywhere: false });
        match config.auth {
            AuthMode::Off if given => bail!("--auth off and --tokens contradict each other: leave one of them out"),
            AuthMode::Off => Ok(for_shapes),
            AuthMode::Auto if !given && config.is_local() => Ok(for_shapes),
            // Shapes have a secret of their own; so that they can be all that a server serves, the rest is closed.
            AuthMode::Auto if !given && config.serves_shapes() => {
                tracing::info!("without --tokens everything but shapes is closed: streams, /metrics and /v1/admin");
                Ok(Some(Wanted { tokens: None, everywhere: true }))
            }
            AuthMode::Auto if !given => bail!(
                "{} can be reached from other machines, and no tokens say who may do what: make one with `thalweg token new --name \
                 app --admin '*'`, put its lines into a file and name that with --tokens FILE; or say --auth off to let everybody \
                 read, write and delete everything",
                config.listen
            ),
            AuthMode::On if !given => bail!("--auth on needs --tokens FILE; `thalweg token new` makes a token for it"),
            AuthMode::On | AuthMode::Auto => Ok(Some(Wanted { tokens: Some(&config.tokens), everywhere: true })),
        }
    }

    fn open(Wanted { tokens: path, everywhere }: Wanted<'_>, data: &Path) -> anyhow::Result<Self> {
        let known =
            Known { tokens: path.map(Tokens::read).transpose()?.unwrap_or_default(), key: Key::load(data, true)? };
        if let Some(path) = path.filter(|_| known.tokens.len() == 0) {
            tracing::warn!(path = %path.display(), "the file of tokens is empty: nobody may do anything");
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
    pub(crate) fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// The files whose change is to be noticed.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.path.iter().cloned().chain([self.data.join(signed::KEY_FILE)]).collect()
    }

    /// Reads the files again. If they are wrong, what was known stays.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let tokens = self.path.as_deref().map(Tokens::read).transpose()?.unwrap_or_default();
        let key = Key::load(&self.data, true)?;
        let count = tokens.len();
        self.known.store(std::sync::Arc::new(Known { tokens, key }));
        tracing::info!(tokens = count, "tokens were read again");
        Ok(())
    }

    /// The answer to a request that is not to reach the routes: a refusal, or a signed token. `None` lets it pass. `needs`: of its route.
    pub(crate) fn answer(&self, request: &Request<'_>, needs: Needs, now_ms: u64) -> Option<Response> {
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

    /// The refusal of a request of which there is only the head. `None` lets it go on to [`Auth::answer`].
    pub(crate) fn on_head(&self, head: &Request<'_>, needs: Needs, now_ms: u64) -> Option<Response> {
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

    /// What a request for shapes may read, if it comes with a token; `None` if it comes with none. `open`: shapes ask nobody for anything,
    /// so a token that is not ours is for somebody else.
    pub(crate) fn shapes(
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
        granted.map(Some).map_err(|denied| self.denials.told(&denied))
    }

    /// Refusals since the start, by their code.
    pub(crate) fn denied(&self) -> DeniedCounts {
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

    /// Who sends a request.
    fn bearer(&self, request: &Request<'_>, now_ms: u64) -> Result<Bearer<'_>, Denied> {
        let Credential { token, way } = bearer::find(request)?;
        if way == Way::Query && request.headers.get("sec-fetch-mode") == Some(b"navigate") {
            return Err(Denied::Opened);
        }
        if way != Way::Header {
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
