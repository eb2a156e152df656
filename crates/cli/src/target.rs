//! Chooses a command's server and credentials, from flags, the environment, and contexts.
//!
//! The server is the first of: `--server`, the context that `--context` names, `THALWEG_SERVER`, the context that
//! `THALWEG_CONTEXT` names, the context in use, and the default. Each credential (token, authority, secret) is the
//! flag, or the context's value, or the variable: a context's token is only ever sent to that context's server.

use crate::context::{Context, Contexts};
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use thalweg_base::Span;

const DEFAULT: &str = "http://127.0.0.1:4437";

/// The flags of a command that choose its server and credentials.
#[derive(Args, Clone, Debug, Default)]
pub struct Target {
    /// The server: http://HOST:PORT or https://HOST [env: THALWEG_SERVER] [default: http://127.0.0.1:4437].
    #[arg(long, global = true, help_heading = "Server", value_name = "URL", conflicts_with = "context")]
    pub(crate) server: Option<String>,
    /// The server and token that `thalweg context add` has kept under this name [env: THALWEG_CONTEXT].
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Sent as a bearer token. Other users of the machine can see command lines: rather use a context, or the variable
    /// [env: THALWEG_TOKEN].
    #[arg(long, global = true, help_heading = "Server", value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Trust the certificates in this PEM file instead of the system's [env: THALWEG_CA].
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Keep trying for this long while the server does not answer or is overloaded [default: 1min; tail: for ever].
    #[arg(long, global = true, help_heading = "Server", value_name = "TIME")]
    pub(crate) retry_for: Option<Span>,
}

/// A server with its credentials, as flags, variables and contexts give them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) server: String,
    pub(crate) token: Option<String>,
    pub(crate) ca: Option<PathBuf>,
    /// The secret of shapes.
    pub(crate) secret: Option<String>,
    /// The context that server and token come from.
    pub(crate) context: Option<String>,
}

impl Target {
    /// `secret`: of shapes, as the command line has it.
    pub(crate) fn choose(&self, secret: Option<&str>) -> Result<Chosen, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        self.choose_from(secret, &variable, Contexts::read)
    }

    fn choose_from(
        &self,
        secret: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
        contexts: impl Fn() -> Result<Contexts, Failure>,
    ) -> Result<Chosen, Failure> {
        let mut kept = Context::default();
        let mut name = None;
        let mut take = |wanted: String| -> Result<String, Failure> {
            kept = contexts()?.get(&wanted)?.clone();
            name = Some(wanted);
            Ok(kept.server.clone())
        };
        let server = if let Some(server) = &self.server {
            server.clone()
        } else if let Some(wanted) = &self.context {
            take(wanted.clone())?
        } else if let Some(server) = variable("THALWEG_SERVER") {
            server
        } else if let Some(wanted) = variable("THALWEG_CONTEXT") {
            take(wanted)?
        } else if let Some(wanted) = contexts()?.current {
            take(wanted)?
        } else {
            DEFAULT.to_owned()
        };
        let given = |flag: Option<&str>| flag.filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Chosen {
            server,
            token: given(self.token.as_deref()).or(kept.token).or_else(|| variable("THALWEG_TOKEN")),
            ca: self.ca.clone().or(kept.ca).or_else(|| variable("THALWEG_CA").map(PathBuf::from)),
            secret: given(secret).or(kept.secret).or_else(|| variable("THALWEG_SHAPE_SECRET")),
            context: name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(current: Option<&str>) -> Contexts {
        let mut contexts = Contexts { current: current.map(str::to_owned), ..Contexts::default() };
        for name in ["prod", "test"] {
            let context = Context {
                server: format!("https://{name}"),
                token: Some(format!("{name}-token")),
                ..Context::default()
            };
            contexts.all.insert(name.to_owned(), context);
        }
        contexts.all.insert("open".to_owned(), Context { server: "http://open".to_owned(), ..Context::default() });
        contexts
    }

    /// Server and token that are chosen.
    fn chosen(target: Target, variables: &[(&str, &str)], current: Option<&str>) -> (String, Option<String>) {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let chosen = target.choose_from(None, &variable, || Ok(contexts(current))).unwrap();
        (chosen.server, chosen.token)
    }

    fn is(server: &str, token: Option<&str>) -> (String, Option<String>) {
        (server.to_owned(), token.map(str::to_owned))
    }

    #[test]
    fn flags_win_over_variables_and_variables_over_the_context_in_use() {
        let none = Target::default;
        let server = || Target { server: Some("http://flag".to_owned()), ..none() };
        let prod = || Target { context: Some("prod".to_owned()), ..none() };
        let variable = ("THALWEG_SERVER", "http://variable");
        assert_eq!(chosen(none(), &[], None), is(DEFAULT, None));
        assert_eq!(chosen(none(), &[], Some("test")), is("https://test", Some("test-token")));
        assert_eq!(
            chosen(none(), &[("THALWEG_CONTEXT", "prod")], Some("test")),
            is("https://prod", Some("prod-token"))
        );
        assert_eq!(chosen(none(), &[variable, ("THALWEG_CONTEXT", "prod")], None), is("http://variable", None));
        assert_eq!(chosen(prod(), &[variable], Some("test")), is("https://prod", Some("prod-token")));
        assert_eq!(chosen(server(), &[variable, ("THALWEG_CONTEXT", "prod")], None), is("http://flag", None));
    }

    #[test]
    fn a_token_goes_to_the_server_that_it_is_for() {
        let token = ("THALWEG_TOKEN", "variable");
        let server = Target { server: Some("http://flag".to_owned()), ..Target::default() };
        assert_eq!(chosen(server, &[token], Some("prod")), is("http://flag", Some("variable")));
        assert_eq!(chosen(Target::default(), &[token], Some("prod")), is("https://prod", Some("prod-token")));
        assert_eq!(chosen(Target::default(), &[token], Some("open")), is("http://open", Some("variable")));
        let flag = Target { token: Some("flag".to_owned()), ..Target::default() };
        assert_eq!(chosen(flag, &[token], Some("prod")), is("https://prod", Some("flag")));
    }

    #[test]
    fn a_context_that_is_not_there_is_named() {
        let target = Target { context: Some("nowhere".to_owned()), ..Target::default() };
        let refused = target.choose_from(None, &|_| None, || Ok(contexts(None))).unwrap_err().to_string();
        assert!(refused.contains("`nowhere`") && refused.contains("prod"), "{refused}");
    }
}
