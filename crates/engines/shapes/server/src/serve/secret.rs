//! The one secret that all of the shapes' clients have.

use subtle::ConstantTimeEq;
use thalweg_shapes_core::request::query::{decoded, pairs};

/// The value that a request must have as `secret`, or as `api_secret`, the name in older clients.
#[derive(Clone)]
pub(crate) struct Secret(Option<Box<[u8]>>);

impl Secret {
    /// `None`: no secret is required.
    pub(crate) fn new(secret: Option<&str>) -> Self {
        Self(secret.map(|secret| secret.as_bytes().into()))
    }

    /// Whether a query has a secret, right or wrong.
    #[must_use]
    pub(crate) fn is_in(query: Option<&str>) -> bool {
        pairs(query.unwrap_or_default()).any(|(name, _)| matches!(&*name, "secret" | "api_secret"))
    }

    /// Whether a request with this query may pass. Takes as long for a near miss as for any other secret of that
    /// length.
    #[must_use]
    pub(crate) fn admits(&self, query: Option<&str>) -> bool {
        let Some(secret) = &self.0 else { return true };
        let (mut given, mut older) = (None, None);
        for (name, value) in pairs(query.unwrap_or_default()) {
            match &*name {
                "secret" => given = Some(value),
                "api_secret" => older = Some(value),
                _ => {}
            }
        }
        given.or(older).and_then(|value| decoded(value).ok()).is_some_and(|value| secret.ct_eq(value.as_bytes()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_opens() {
        let secret = Secret::new(Some("s+ /"));
        for query in ["secret=s%2B+/", "table=t&secret=s%2b%20%2F&x", "api_secret=s%2B+/", "secret=x&secret=s%2B+/"] {
            assert!(secret.admits(Some(query)), "{query}");
        }
        for query in [
            "",
            "secret=",
            "secret=s",
            "secret=s%2B+/x",
            "secret=s%2B+%ff",
            "xsecret=s%2B+/",
            "secret[]=s%2B+/",
            "secret=s%2B+/&secret=x",
            "secret=x&api_secret=s%2B+/",
            "secret&api_secret=s%2B+/",
        ] {
            assert!(!secret.admits(Some(query)), "{query}");
        }
        assert!(!secret.admits(None));
    }

    #[test]
    fn a_wrong_secret_is_one_too() {
        for query in ["secret=x", "a=1&secret", "api_secret=", "s%65cret=x", "secret=%ff"] {
            assert!(Secret::is_in(Some(query)), "{query}");
        }
        assert!(!Secret::is_in(Some("xsecret=1&table=secret&SECRET=1")) && !Secret::is_in(None));
    }

    #[test]
    fn without_a_secret_everybody_passes() {
        assert!(Secret::new(None).admits(None) && Secret::new(None).admits(Some("secret=x")));
    }

    #[test]
    fn an_empty_secret_is_still_asked_for() {
        assert!(!Secret::new(Some("")).admits(None));
        assert!(Secret::new(Some("")).admits(Some("secret=")));
    }
}
