//! The bodies of answers: arrays of messages.

use bytes::Bytes;

/// The parts of a JSON array: messages, each with a comma after it, and the ending, which has none.
pub(super) fn array(messages: &[Bytes], mut tail: Vec<u8>) -> Vec<Bytes> {
    let mut parts = Vec::with_capacity(messages.len() + 2);
    parts.push(Bytes::from_static(b"["));
    parts.extend(messages.iter().filter(|part| !part.is_empty()).cloned());
    if tail.is_empty()
        && parts.len() > 1
        && let Some(last) = parts.last_mut()
    {
        last.truncate(last.len() - 1);
    }
    // The message that ends a snapshot has a comma after it too.
    tail.pop_if(|byte| *byte == b',');
    tail.push(b']');
    parts.push(tail.into());
    parts
}

#[cfg(test)]
mod tests {
    use super::array;
    use bytes::Bytes;

    #[test]
    fn messages_become_an_array_however_they_are_cut() {
        let body = |messages: &[&'static str], tail: &str| {
            let messages: Vec<Bytes> = messages.iter().map(|part| Bytes::from_static(part.as_bytes())).collect();
            String::from_utf8(array(&messages, tail.into()).concat()).unwrap()
        };
        assert_eq!(body(&[], ""), "[]");
        assert_eq!(body(&[], "{9}"), "[{9}]");
        assert_eq!(body(&[], "{9},"), "[{9}]");
        assert_eq!(body(&["{1},{2", "},"], ""), "[{1},{2}]");
        assert_eq!(body(&["{1}", ",", ""], ""), "[{1}]");
        assert_eq!(body(&["{1},", "{2},"], "{8},{9}"), "[{1},{2},{8},{9}]");
    }
}
