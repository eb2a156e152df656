//! Rights of a token: scopes over prefixes of stream names.

use std::fmt;
use std::str::FromStr;
use thalweg_shapes::Grants;
use thalweg_streams::{Place, place_of_path};

/// A kind of access to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// GET and HEAD.
    Read,
    /// PUT and POST. Does not include reading.
    Write,
    /// Reading, writing and DELETE.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// The word for it in files and tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| format!("`{text}` is not one of `read`, `write`, `admin`"))
    }
}

/// Some of all names, cut at segments: `chat/` is everything below `chat`, `chat` is that and the stream `chat` itself,
/// `*` is everything. `chatter` is under neither of the first two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// A name in its normal form; empty for everything.
    base: Box<str>,
    /// Whether the stream of that name belongs to it.
    itself: bool,
}

impl Prefix {
    /// The prefix `*`.
    pub fn everything() -> Self {
        Self { base: "".into(), itself: true }
    }

    /// Whether the stream of this name, in its normal form, is under the prefix.
    pub fn holds(&self, name: &str) -> bool {
        self.base.is_empty()
            || name
                .strip_prefix(&*self.base)
                .is_some_and(|rest| (rest.is_empty() && self.itself) || rest.starts_with('/'))
    }

    /// Whether everything under `other` is under this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match other.base.is_empty() {
            true => self.base.is_empty(),
            false if self.base == other.base => self.itself || !other.itself,
            false => self.holds(&other.base),
        }
    }

    /// Whether every name that begins with `text`, which need not end with a segment, is under this.
    fn covers_beginning(&self, text: &str) -> bool {
        self.base.is_empty() || text.strip_prefix(&*self.base).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::everything());
        }
        let (base, itself) = match text.strip_suffix('/') {
            Some(base) => (base, false),
            None => (text, true),
        };
        match place_of_path(base, "") {
            Ok(Place::Stream(name)) => Ok(Self { base: name.into(), itself }),
            Ok(Place::Control(_)) => Err(format!("`{text}` is reserved by the protocol; `*` is everything")),
            Err(why) => Err(format!(
                "`{text}` is not a prefix of stream names ({why}); write `chat/` for all below it, `chat` for that and the stream \
                 `chat` itself, or `*` for everything"
            )),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.base, self.itself) {
            ("", _) => f.write_str("*"),
            (base, true) => f.write_str(base),
            (base, false) => write!(f, "{base}/"),
        }
    }
}

/// Scopes over prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub read: Vec<Prefix>,
    pub write: Vec<Prefix>,
    pub admin: Vec<Prefix>,
    /// Parts of tables that may be read as shapes. No scope over streams includes any.
    pub shapes: Grants,
}

impl Rights {
    /// One scope over one prefix, and no shapes.
    pub fn one(scope: Scope, prefix: Prefix) -> Self {
        let mut rights = Self::default();
        match scope {
            Scope::Read => rights.read.push(prefix),
            Scope::Write => rights.write.push(prefix),
            Scope::Admin => rights.admin.push(prefix),
        }
        rights
    }

    /// Whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty() && self.admin.is_empty() && self.shapes.is_empty()
    }

    /// A prefix in the form of a pattern. Names may hold a `*`, so the prefix is valid; but most users with one expect
    /// a pattern, and as a prefix it matches no stream.
    pub fn pattern(&self) -> Option<&Prefix> {
        let all = [&self.read, &self.write, &self.admin].into_iter().flatten();
        all.into_iter().find(|prefix| prefix.base.contains('*'))
    }

    fn any(&self, scope: Scope, mut holds: impl FnMut(&Prefix) -> bool) -> bool {
        let own = match scope {
            Scope::Read => &self.read,
            Scope::Write => &self.write,
            Scope::Admin => return self.admin.iter().any(holds),
        };
        own.iter().any(&mut holds) || self.admin.iter().any(holds)
    }

    /// Whether this may be done to the stream of this name, in its normal form.
    pub fn allow(&self, scope: Scope, name: &str) -> bool {
        self.any(scope, |prefix| prefix.holds(name))
    }

    /// Whether this may be done to every stream under a prefix.
    pub(crate) fn allow_all(&self, scope: Scope, under: &Prefix) -> bool {
        self.any(scope, |prefix| prefix.covers(under))
    }

    /// Whether the scope holds over every stream whose name begins with `text`.
    pub(crate) fn allow_beginning(&self, scope: Scope, text: &str) -> bool {
        self.any(scope, |prefix| prefix.covers_beginning(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_ends_at_a_segment() {
        assert!(prefix("chat/").holds("chat/a") && prefix("chat/").holds("chat/a/b"));
        assert!(!prefix("chat/").holds("chat"));
        assert!(prefix("chat").holds("chat") && prefix("chat").holds("chat/a"));
        for other in ["chatter", "chatter/a", "cha", "a/chat/b", "chat%2Fa", "Chat/a"] {
            assert!(!prefix("chat").holds(other), "{other}");
            assert!(!prefix("chat/").holds(other), "{other}");
        }
        assert!(prefix("*").holds("anything/at/all"));
    }

    #[test]
    fn a_prefix_is_normalised_as_names_are() {
        assert_eq!(prefix("%63hat/"), prefix("chat/"));
        assert_eq!(prefix("caf\u{e9}"), prefix("caf%c3%a9"));
        assert_eq!(prefix("%63hat/").to_string(), "chat/");
    }

    #[test]
    fn what_could_be_taken_for_everything_is_refused() {
        for text in ["", "/", "//", "a//b", "/a", ".", "../a", "a/..", "__ds", "__ds/", "%5f_ds/x", "a\0", "%zz"] {
            assert!(text.parse::<Prefix>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_star_inside_a_prefix_looks_like_a_pattern() {
        for text in ["chat*", "chat/*", "*/a", "**", "chat/**/"] {
            assert!(Rights::one(Scope::Read, prefix(text)).pattern().is_some(), "{text}");
        }
        for text in ["*", "chat", "chat/"] {
            assert!(Rights::one(Scope::Read, prefix(text)).pattern().is_none(), "{text}");
        }
    }

    #[test]
    fn admin_includes_the_rest_and_write_does_not_include_read() {
        let writer = Rights::one(Scope::Write, prefix("a/"));
        assert!(
            writer.allow(Scope::Write, "a/b")
                && !writer.allow(Scope::Read, "a/b")
                && !writer.allow(Scope::Admin, "a/b")
        );
        let admin = Rights::one(Scope::Admin, prefix("a/"));
        assert!(Scope::ALL.into_iter().all(|scope| admin.allow(scope, "a/b")));
    }

    #[test]
    fn a_list_of_half_a_segment_needs_all_that_could_follow() {
        let rights = Rights::one(Scope::Read, prefix("chat"));
        assert!(rights.allow_beginning(Scope::Read, "chat/") && rights.allow_beginning(Scope::Read, "chat/roo"));
        assert!(!rights.allow_beginning(Scope::Read, "chat") && !rights.allow_beginning(Scope::Read, ""));
        assert!(Rights::one(Scope::Read, Prefix::everything()).allow_beginning(Scope::Read, ""));
    }

    proptest! {
        /// `covers` says the same as asking for every name, over names and prefixes of an alphabet small enough to
        /// collide.
        #[test]
        fn covering_is_holding_all(outer in "(\\*|[ab]{1,2}(/[ab]{1,2}){0,2}/?)", inner in "(\\*|[ab]{1,2}(/[ab]{1,2}){0,2}/?)",
                                   name in "[ab]{1,2}(/[ab]{1,2}){0,3}") {
            let (outer, inner) = (prefix(&outer), prefix(&inner));
            if outer.covers(&inner) && inner.holds(&name) {
                prop_assert!(outer.holds(&name));
            }
            // The least names that are under `inner`.
            let below = if inner.base.is_empty() { "zz".to_owned() } else { format!("{}/zz", inner.base) };
            let all = outer.holds(&below) && (inner.base.is_empty() || !inner.itself || outer.holds(&inner.base))
                && (!inner.base.is_empty() || outer.base.is_empty());
            prop_assert_eq!(outer.covers(&inner), all);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC{0,12}") {
            if let Ok(prefix) = text.parse::<Prefix>() {
                prop_assert_eq!(prefix.to_string().parse::<Prefix>(), Ok(prefix));
            }
        }
    }
}
