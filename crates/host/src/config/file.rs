//! The TOML file: the same keys as the flags, with underscores.

use super::Settings;
use anyhow::{Context, bail};
use serde::de::{Deserializer, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::str::FromStr;

/// Reads a file of settings. An unknown key is refused, with the nearest known one.
pub(super) fn read(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    parse(&text).with_context(|| format!("in the configuration file {}", path.display()))
}

pub(super) fn parse(text: &str) -> anyhow::Result<Settings> {
    let table: toml::Table = text.parse().context("this is not TOML")?;
    for key in table.keys() {
        if !Settings::KEYS.contains(&key.as_str()) {
            match nearest_of(&key.replace('-', "_").to_ascii_lowercase(), Settings::KEYS.iter().copied()) {
                Some(near) => bail!("unknown setting `{key}`: did you mean `{near}`?"),
                None => bail!("unknown setting `{key}`; the settings are: {}", Settings::KEYS.join(", ")),
            }
        }
    }
    Ok(toml::from_str(text)?)
}

/// The name with the smallest edit distance, if it is near enough to be meant.
pub(super) fn nearest_of(name: &str, all: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let (distance, near) = all.map(|known| (distance(name, known), known)).min()?;
    (distance <= 2.max(name.len() / 3)).then_some(near)
}

/// Levenshtein distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Reads a value that is written as text, or as a plain TOML number or boolean.
pub(super) fn value<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    struct Text<T>(PhantomData<T>);

    impl<T> Visitor<'_> for Text<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text, a number or a boolean")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map(Some).map_err(E::custom)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_bool<E: serde::de::Error>(self, yes: bool) -> Result<Self::Value, E> {
            self.visit_str(if yes { "true" } else { "false" })
        }
    }

    deserializer.deserialize_any(Text(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_sets_what_it_names_and_nothing_else() {
        let settings =
            parse("listen = \"127.0.0.1:9\"\nsettle_after = \"3s\"\nreactors = 4\nsettle = false\n").unwrap();
        assert_eq!(settings.listen.unwrap().0.port(), 9);
        assert_eq!(settings.settle_after.unwrap().0, Duration::from_secs(3));
        assert_eq!(settings.reactors, Some(4));
        assert!(settings.data.is_none());
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_right_one() {
        let refused = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(refused("listn = \"127.0.0.1:9\"").contains("did you mean `listen`"));
        assert!(refused("long-poll-timeout = \"1s\"").contains("did you mean `long_poll_timeout`"));
        assert!(refused("colour_of_the_bike_shed = 1").contains("the settings are: "));
    }

    #[test]
    fn a_bad_value_says_what_was_expected() {
        let refused = format!("{:#}", parse("durability = \"fast\"").unwrap_err());
        assert!(refused.contains("`durable`, `buffered`"), "{refused}");
        assert!(parse("settle_after = [1]").is_err());
        assert!(parse("this is not toml").is_err());
    }
}
