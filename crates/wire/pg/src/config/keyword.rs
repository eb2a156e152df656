//! The form `name=value name='a value' …`, with `\` before a quote or itself, in quotes or not.

use super::ConfigError;
use super::parameter::Parameters;

pub(super) fn parameters(text: &str) -> Result<Parameters, ConfigError> {
    let mut parameters = Parameters::default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let (name, after) = rest.split_once('=').ok_or(ConfigError::Syntax(at))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(ConfigError::Syntax(at));
        }
        let (value, after) = value(after.trim_start()).ok_or(ConfigError::Syntax(at))?;
        parameters.set(name, value)?;
        rest = after.trim_start();
    }
    Ok(parameters)
}

/// The value at the beginning of `text`, and the rest.
fn value(text: &str) -> Option<(String, &str)> {
    let quoted = text.starts_with('\'');
    let body = if quoted { &text[1..] } else { text };
    let mut value = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.push(chars.next()?.1),
            '\'' if quoted => return Some((value, &body[at + 1..])),
            c if !quoted && c.is_whitespace() => return Some((value, &body[at..])),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, ""))
}
