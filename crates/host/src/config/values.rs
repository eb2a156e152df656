//! How settings are written: addresses, names, switches. Durations and sizes are values of `thalweg-base`.
//!
//! Every type here reads and writes the same text on the command line, in the environment and in the file.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use thalweg_object::{Location, LocationError};

/// An address to listen on: `127.0.0.1:4437`, `[::1]:4437` or `localhost:4437`; port 0 takes any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || format!("`{text}` is not an address to listen on; write HOST:PORT, such as 127.0.0.1:4437");
        if !text.contains(':') {
            return Err(hint());
        }
        text.to_socket_addrs().ok().and_then(|mut found| found.next()).map(Self).ok_or_else(hint)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The location of a bucket; none in an empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store(pub Option<Location>);

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Ok(Self(None)),
            text => text.parse().map(|location| Self(Some(location))).map_err(|error: LocationError| error.to_string()),
        }
    }
}

/// Without secrets.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |location| f.write_str(&location.described()))
    }
}

/// Names between commas; none in an empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        match names.clone().find(|name| name.contains(char::is_whitespace)) {
            Some(name) => Err(format!("`{name}` has a space in it; write names with commas between them")),
            None => Ok(Self(names.map(str::to_owned).collect())),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// A setting that takes one of a few words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word $(| $alias)* => Ok(Self::$variant),)+
                    _ => Err(format!("`{text}` is not one of {}", [$(concat!("`", $word, "`")),+].join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }
    };
}

words! {
    /// Where webhooks may go.
    WebhookTargets {
        /// `https` to public addresses.
        Public = "public",
        /// Public addresses, and `http` to this machine.
        Local = "local",
        /// Anywhere.
        Any = "any",
    }
}

words! {
    Switch { On = "on" | "true", Off = "off" | "false" }
}

words! {
    /// Whether requests need tokens.
    AuthMode {
        /// On with tokens; without tokens off, if only this machine can connect.
        Auto = "auto",
        On = "on" | "true",
        Off = "off" | "false",
    }
}

words! {
    LogFormat { Text = "text", Json = "json" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_their_choices() {
        assert_eq!("json".parse::<LogFormat>(), Ok(LogFormat::Json));
        assert!("xml".parse::<LogFormat>().unwrap_err().contains("`text`, `json`"));
        assert_eq!("false".parse::<Switch>(), Ok(Switch::Off));
    }

    #[test]
    fn an_address_is_host_and_port() {
        assert_eq!("127.0.0.1:0".parse::<Listen>().unwrap().0.port(), 0);
        assert!("localhost:4437".parse::<Listen>().is_ok());
        assert!("4437".parse::<Listen>().unwrap_err().contains("HOST:PORT"));
    }
}
