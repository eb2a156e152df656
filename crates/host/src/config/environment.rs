//! Variables that were meant for this program and mean nothing to it: a misspelled setting would be a default in
//! silence.
//!
//! Unknown variables are reported and not refused: Kubernetes itself puts `THALWEG_…` variables into every container
//! beside a service of that name.

use super::{Settings, electric, file};

/// Variables that are no settings of a server: of its client commands, and of the scripts around it.
const OTHERS: [&str; 9] = [
    "THALWEG_CONFIG",
    "THALWEG_CONTEXT",
    "THALWEG_SERVER",
    "THALWEG_TOKEN",
    "THALWEG_CA",
    "THALWEG_BIN",
    "THALWEG_KIND",
    "THALWEG_CACHE",
    "THALWEG_PG_BINS",
];

/// A message for each variable that is not understood.
pub fn unknown(variables: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let mut said: Vec<String> = variables.into_iter().filter_map(|(name, value)| complaint(&name, &value)).collect();
    said.sort_unstable();
    said
}

fn complaint(name: &str, value: &str) -> Option<String> {
    if name.starts_with("THALWEG_") {
        let known = || Settings::ALL.iter().map(|setting| setting.env).chain(OTHERS);
        if known().any(|one| one == name) || is_service(name, value) {
            return None;
        }
        return Some(match nearest(name, "THALWEG_", known()) {
            Some(near) => format!("the variable {name} is not a setting and is ignored: did you mean THALWEG_{near}?"),
            None => format!("the variable {name} is not a setting and is ignored; `thalweg serve --help` lists them"),
        });
    }
    if name.starts_with("ELECTRIC_") && !electric::NAMES.contains(&name) {
        return Some(match nearest(name, "ELECTRIC_", electric::NAMES.iter().copied()) {
            Some(near) => format!("the variable {name} has no meaning here and is ignored; ELECTRIC_{near} has one"),
            None => format!("the variable {name} has no meaning here and is ignored"),
        });
    }
    None
}

/// The nearest name, without its prefix.
fn nearest(name: &str, prefix: &str, all: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    file::nearest_of(name.strip_prefix(prefix)?, all.filter_map(|known| known.strip_prefix(prefix)))
}

/// Variables that Kubernetes sets for a service named thalweg (Kubernetes documentation, "Environment variables" of
/// services).
fn is_service(name: &str, value: &str) -> bool {
    let rest = name.strip_prefix("THALWEG_").unwrap_or_default();
    let port = rest.strip_prefix("PORT").unwrap_or("?");
    rest == "SERVICE_HOST"
        || rest.starts_with("SERVICE_PORT")
        || port.starts_with('_')
        || (port.is_empty() && value.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> Vec<String> {
        unknown(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn a_misspelled_variable_is_told_with_the_nearest_right_one() {
        let told = said(&[("THALWEG_LISSTEN", "x"), ("THALWEG_TOKNS", "x"), ("THALWEG_COLOUR_OF_THE_SHED", "x")]);
        assert!(told[1].contains("THALWEG_LISSTEN") && told[1].contains("did you mean THALWEG_LISTEN?"), "{told:?}");
        assert!(told[2].contains("did you mean THALWEG_TOKENS?"), "{told:?}");
        assert!(told[0].contains("--help"), "{told:?}");
        let told = said(&[("ELECTRIC_SECRETS", "x"), ("ELECTRIC_USAGE_REPORTING", "false")]);
        assert!(told[0].contains("ELECTRIC_SECRET has one") && told[1].contains("has no meaning here"), "{told:?}");
    }

    #[test]
    fn what_is_understood_or_somebody_elses_is_not_told() {
        let mut known: Vec<(&str, &str)> = Settings::ALL.iter().map(|setting| (setting.env, "x")).collect();
        known.extend(electric::NAMES.iter().map(|name| (*name, "x")));
        known.extend(OTHERS.map(|name| (name, "x")));
        known.extend([
            ("PATH", "/bin"),
            ("THALWEG", "x"),
            ("THALWEG_SERVICE_HOST", "10.0.0.1"),
            ("THALWEG_SERVICE_PORT", "4437"),
            ("THALWEG_SERVICE_PORT_HTTP", "4437"),
            ("THALWEG_PORT", "tcp://10.0.0.1:4437"),
            ("THALWEG_PORT_4437_TCP_ADDR", "10.0.0.1"),
        ]);
        assert_eq!(said(&known), Vec::<String>::new());
        assert_eq!(said(&[("THALWEG_PORT", "8080")]).len(), 1);
    }
}
