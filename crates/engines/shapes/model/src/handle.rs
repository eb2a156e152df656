//! Handles as clients have them: `<shape>` for clients that began with a shape's first rows, `<shape>.<n>` for those
//! that began with its base `n`.
//!
//! A client that must refetch (409) ignores its earlier handles, because it takes the answer for a stale one from a
//! cache. So a retired base leaves its clients another name of the same shape.

use std::fmt;

/// A handle. Both parts come from the request; whether such a shape and such a base exist is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle<'a> {
    /// The shape's own name.
    pub shape: &'a str,
    /// The base that its client began with.
    pub base: u32,
}

impl<'a> Handle<'a> {
    /// The handle of base `base` of the shape named `shape`.
    #[must_use]
    pub fn new(shape: &'a str, base: u32) -> Self {
        Self { shape, base }
    }

    /// Reads a handle. A text in another form is read as the name of a shape, which then does not exist.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let parts = text.split_once('.').and_then(|(shape, base)| {
            let plain = !base.starts_with('0') && base.bytes().all(|b| b.is_ascii_digit());
            Some(Self { shape, base: base.parse().ok().filter(|_| plain)? })
        });
        parts.unwrap_or(Self { shape: text, base: 0 })
    }
}

impl fmt::Display for Handle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base {
            0 => f.write_str(self.shape),
            base => write!(f, "{}.{base}", self.shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_back_as_it_was_written() {
        for (text, shape, base) in
            [("123-456", "123-456", 0), ("123-456.1", "123-456", 1), ("1-2.4294967295", "1-2", u32::MAX)]
        {
            let handle = Handle::parse(text);
            assert_eq!((handle.shape, handle.base, handle.to_string().as_str()), (shape, base, text));
        }
    }

    #[test]
    fn a_handle_has_one_form() {
        for text in ["1-2.", "1-2.0", "1-2.01", "1-2.+1", "1-2.4294967296", "1-2.1.1", ".", ""] {
            assert_eq!(Handle::parse(text), Handle { shape: text, base: 0 });
        }
    }
}
