//! The settings of an AWS profile: `~/.aws/credentials` and `~/.aws/config`, as the AWS tools write them.
//!
//! Static keys, region and endpoint are read. Profiles that fetch their keys (single sign-on, roles of other accounts)
//! are not: `aws configure export-credentials --format env` gives what the environment needs.

use std::path::PathBuf;

/// Keys of a profile, and the names that the client knows them by.
const KNOWN: [(&str, &str); 5] = [
    ("aws_access_key_id", "aws_access_key_id"),
    ("aws_secret_access_key", "aws_secret_access_key"),
    ("aws_session_token", "aws_session_token"),
    ("region", "aws_region"),
    ("endpoint_url", "aws_endpoint_url"),
];

/// The settings of the profile that the environment names (`AWS_PROFILE`), or of the default one. Files that are missing
/// say nothing.
pub(crate) fn settings() -> Vec<(&'static str, String)> {
    let profile = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
    let file = |variable: &str, name: &str| {
        let chosen = std::env::var_os(variable).map(PathBuf::from);
        let path = chosen.or_else(|| Some(std::env::home_dir()?.join(".aws").join(name)))?;
        std::fs::read_to_string(path).ok()
    };
    let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
    let of_config = if profile == "default" { profile.clone() } else { format!("profile {profile}") };
    // Both files may have keys: those of the credentials count.
    let mut found = section(&credentials, &profile);
    for (key, value) in section(&config, &of_config) {
        if !found.iter().any(|(known, _)| *known == key) {
            found.push((key, value));
        }
    }
    found
}

/// The known keys of one section.
fn section(text: &str, wanted: &str) -> Vec<(&'static str, String)> {
    let mut is_in = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(name) = line.trim_start().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_in = name.split_whitespace().eq(wanted.split_whitespace());
        } else if let (true, Some((key, value))) = (is_in, line.split_once('='))
            // Lines that begin with a space belong to a setting of several lines.
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((_, name)) = KNOWN.iter().find(|(known, _)| *known == key.trim())
        {
            found.push((*name, value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
[default]
aws_access_key_id = A
aws_secret_access_key=B=
region = eu-west-1
s3 =
    endpoint_url = http://inner
# region = no
[ profile   work ]
endpoint_url = http://127.0.0.1:7070
output = json
";

    #[test]
    fn a_section_has_its_own_known_keys() {
        let default = [("aws_access_key_id", "A"), ("aws_secret_access_key", "B="), ("aws_region", "eu-west-1")];
        assert_eq!(section(TEXT, "default"), default.map(|(key, value)| (key, value.to_owned())));
        assert_eq!(section(TEXT, "profile work"), [("aws_endpoint_url", "http://127.0.0.1:7070".to_owned())]);
        assert!(section(TEXT, "other").is_empty() && section("", "default").is_empty());
    }
}
