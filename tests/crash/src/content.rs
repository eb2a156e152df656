//! Content of appends: messages that follow from a seed, so that the notes stay small.

/// How a stream's content is made and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Binary,
    Text,
    Json,
}

impl Format {
    pub(crate) const ALL: [Self; 3] = [Self::Binary, Self::Text, Self::Json];

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Binary => "application/octet-stream",
            Self::Text => "text/plain",
            Self::Json => "application/json",
        }
    }

    /// The content of an answer as a sequence of messages: JSON arrays become one line per message, bytes stay as they
    /// are.
    pub(crate) fn normalise(self, body: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
        if self != Self::Json {
            into.extend_from_slice(body);
            return Ok(());
        }
        let messages: Vec<&serde_json::value::RawValue> =
            serde_json::from_slice(body).map_err(|error| format!("the answer is not a JSON array: {error}"))?;
        for message in messages {
            into.extend_from_slice(message.get().as_bytes());
            into.push(b'\n');
        }
        Ok(())
    }
}

/// One message; its bytes follow from seed and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) seed: u64,
    pub(crate) len: u32,
}

impl Message {
    pub(crate) fn random(rng: &mut oorandom::Rand64) -> Self {
        let len = match rng.rand_range(0..100) {
            0..10 => 1,
            10..60 => rng.rand_range(2..300),
            60..88 => rng.rand_range(300..4_000),
            88..98 => rng.rand_range(4_000..64_000),
            _ => rng.rand_range(64_000..300_000),
        };
        Self { seed: rng.rand_u64(), len: u32::try_from(len).unwrap_or(1) }
    }

    /// Adds the message as it is sent.
    pub(crate) fn render(self, format: Format, out: &mut Vec<u8>) {
        match format {
            Format::Binary => filler(self.seed, self.len as usize, false, out),
            Format::Text => filler(self.seed, self.len as usize, true, out),
            Format::Json if self.len < 24 => out.extend_from_slice((self.seed % 1_000_000_000).to_string().as_bytes()),
            Format::Json => {
                out.extend_from_slice(format!("{{\"s\":{},\"a\":[1,2],\"p\":\"", self.seed % 1_000_000_000).as_bytes());
                filler(self.seed, self.len as usize, true, out);
                out.extend_from_slice(b"\"}");
            }
        }
    }

    /// Adds the message as [`Format::normalise`] shows it.
    pub(crate) fn expected(self, format: Format, out: &mut Vec<u8>) {
        self.render(format, out);
        if format == Format::Json {
            out.push(b'\n');
        }
    }
}

/// A request's body: one message, or for JSON an array of several.
pub(crate) fn body(messages: &[Message], format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    let array = format == Format::Json && messages.len() != 1;
    if array {
        out.push(b'[');
    }
    for (i, message) in messages.iter().enumerate() {
        if array && i > 0 {
            out.push(b',');
        }
        message.render(format, &mut out);
    }
    if array {
        out.push(b']');
    }
    out
}

/// Bytes that follow from a seed; printable ones need no escaping anywhere.
pub(crate) fn filler(seed: u64, len: usize, printable: bool, out: &mut Vec<u8>) {
    let end = out.len() + len;
    let mut state = seed;
    while out.len() < end {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^= word >> 27;
        for byte in word.to_le_bytes() {
            out.push(if printable { b'a' + byte % 26 } else { byte });
        }
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_expected_back() {
        let messages = [Message { seed: 1, len: 3 }, Message { seed: 2, len: 100 }];
        for format in Format::ALL {
            let sent = body(&messages, format);
            let mut expected = Vec::new();
            messages.iter().for_each(|message| message.expected(format, &mut expected));
            let mut seen = Vec::new();
            format.normalise(&sent, &mut seen).unwrap();
            assert_eq!(seen, expected);
        }
    }
}
