//! Settings as text: the example file, and the values in force with their sources.

use super::values::{AuthMode, Listen, LogFormat, Names, Store, Switch, WebhookTargets};
use super::{Config, Layers, Setting, Settings};
use std::fmt::Write;
use std::path::PathBuf;
use thalweg_base::{Level, Size, Span};

/// How wide comments of the example file are.
const WIDTH: usize = 96;

/// A value as the file has it.
pub(super) trait Written {
    fn written(&self) -> String;
}

macro_rules! plain { ($($type:ty),+) => { $(impl Written for $type {
    fn written(&self) -> String { self.to_string() }
})+ } }

macro_rules! quoted { ($($type:ty),+) => { $(impl Written for $type {
    fn written(&self) -> String { quoted(&self.to_string()) }
})+ } }

plain!(usize, u32, u64);
quoted!(String, Names, Store, Listen, Span, Size, Level, AuthMode, Switch, LogFormat, WebhookTargets);

impl Written for PathBuf {
    fn written(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A commented file with all settings and their defaults, made from the table that the flags come from.
pub fn example() -> String {
    let mut text = format!(
        "# Settings of thalweg {}, with their defaults. Remove the # before a line to change it, and start the server with\n\
         # thalweg serve --config FILE. Each setting is also a flag (--settle-after 3s) and a variable of the\n\
         # environment (THALWEG_SETTLE_AFTER=3s); flags win over variables, variables over this file.\n\
         #\n\
         # Times: 500ms, 30s, 5min, 2h, 7d. Sizes: bytes, or with KiB, MiB, GiB, TiB.\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut heading = "";
    let defaults = Settings::default().resolve().map(|config| config.written()).unwrap_or_default();
    for (setting, value) in Settings::ALL.iter().zip(defaults) {
        if setting.heading != heading {
            heading = setting.heading;
            let _ = write!(text, "\n# ---- {heading}\n");
        }
        let form = if setting.value.is_empty() { String::new() } else { format!(" ({})", setting.value) };
        text.push('\n');
        for line in wrapped(&format!("{}.{form}", setting.help), WIDTH) {
            let _ = writeln!(text, "# {line}");
        }
        // Numbers have no quotes in TOML.
        let value = if value.starts_with('"') { quoted(setting.default) } else { value };
        let _ = writeln!(text, "#{} = {value}", setting.key);
    }
    text
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The source of a setting, flag or variable, as the command line reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag.
    Flag,
    /// A variable of the environment.
    Environment,
}

/// The settings in force as a file, each with where it comes from. Secrets are left out.
pub fn described(layers: &Layers, config: &Config, source: impl Fn(&str) -> Source) -> String {
    let lines: Vec<(String, String)> = Settings::ALL
        .iter()
        .zip(config.written())
        .map(|(setting, value)| {
            let value = match setting.key {
                "shape_secret" if value != "\"\"" => "\"***\"".to_owned(),
                "database_url" | "query_database_url" => without_password(&value),
                _ => value,
            };
            let line = format!("{} = {value}", setting.key);
            (line, layers.origin(setting, config, &source))
        })
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|n| *n <= 60).max().unwrap_or(0);
    lines.into_iter().fold(String::new(), |mut text, (line, origin)| {
        let _ = writeln!(text, "{line:width$}  # {origin}");
        text
    })
}

impl Layers {
    fn origin(&self, setting: &Setting, config: &Config, source: &impl Fn(&str) -> Source) -> String {
        let Setting { key, env, .. } = setting;
        let opened = *key == "shape_insecure" && config.shape_insecure == Switch::On;
        if self.given.has(key) {
            match source(key) {
                Source::Flag => format!("--{}", key.replace('_', "-")),
                Source::Environment => (*env).to_owned(),
            }
        } else if self.electric.has(key) {
            "a variable of Electric".to_owned()
        } else if self.file.has(key) {
            "the file".to_owned()
        } else if self.dev.as_ref().is_some_and(|dev| dev.has(key) || opened) {
            "thalweg dev".to_owned()
        } else {
            "default".to_owned()
        }
    }
}

/// The address of a database without its password: `postgres://user:***@host/db`, `password=***`.
pub fn without_password(url: &str) -> String {
    let mut text = url.to_owned();
    if let Some(begin) = text.find("://").map(|at| at + 3)
        && let Some(end) = text[begin..].rfind('@').map(|at| begin + at)
        && let Some(colon) = text[begin..end].find(':').map(|at| begin + at)
    {
        text.replace_range(colon + 1..end, "***");
    }
    if let Some(begin) = text.find("password=").map(|at| at + "password=".len()) {
        let end = text[begin..].find(['&', ' ', '"']).map_or(text.len(), |at| begin + at);
        text.replace_range(begin..end, "***");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn the_example_has_every_setting_and_taken_at_its_word_changes_nothing() {
        let text = example();
        let all: String = text
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with([' ', '\n']) && !line.is_empty()))
            .fold(String::new(), |all, line| all + line + "\n");
        let defaults = Settings::default().resolve().unwrap();
        let read = file::parse(&all).unwrap();
        assert!(Settings::ALL.iter().all(|setting| read.has(setting.key)), "{text}");
        assert_eq!(read.resolve().unwrap().written(), defaults.written());
        assert!(text.lines().all(|line| line.chars().count() <= 120), "it fits a terminal");
    }

    #[test]
    fn what_is_in_force_reads_back_as_the_same_and_says_where_it_comes_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thalweg.toml");
        std::fs::write(&path, "data = \"/from/file\"\n").unwrap();
        let given = Settings {
            settle_after: Some("3s".parse().unwrap()),
            reactors: Some(4),
            database_url: Some("postgres://me:secret@h/d?password=secret".to_owned()),
            shape_secret: Some("secret".to_owned()),
            ..Settings::default()
        };
        let layers = Layers::gather(given, Some(&path), true).unwrap();
        let config = layers.resolve().unwrap();
        let source = |key: &str| if key == "reactors" { Source::Flag } else { Source::Environment };
        let text = described(&layers, &config, source);
        let origin = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
            line.rsplit_once("# ").unwrap().1.to_owned()
        };
        assert_eq!(origin("reactors"), "--reactors");
        assert_eq!(origin("settle_after"), "THALWEG_SETTLE_AFTER");
        assert_eq!(origin("data"), "the file");
        assert_eq!(origin("webhook_targets"), "thalweg dev");
        assert_eq!(origin("listen"), "default");
        assert!(!text.contains("secret@") && !text.contains("=secret") && !text.contains("\"secret\""), "{text}");
        let again = file::parse(&text).unwrap().resolve().unwrap();
        assert_eq!(again.written()[1..9], config.written()[1..9]);
        assert_eq!(again.reactors, 4);
    }

    #[test]
    fn passwords_of_databases_are_not_shown() {
        assert_eq!(without_password("postgres://u:p@ss@h/d"), "postgres://u:***@h/d");
        assert_eq!(without_password("postgres://u@h:5432/d"), "postgres://u@h:5432/d");
        assert_eq!(without_password("host=h password=p user=u"), "host=h password=*** user=u");
        assert_eq!(without_password(""), "");
    }
}
