//! Paths inside the data folder: relative, with `/` between plain names, so that no path can lead out of it.

use std::io;

/// Refuses absolute paths, empty parts, `.`, `..` and NUL.
pub fn check_path(path: &str) -> io::Result<()> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    if path.split('/').all(plain) {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} is not a path inside the data folder")))
    }
}

/// The folder that `path` is in; the data folder itself is the empty string.
#[must_use]
pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_paths_pass() {
        for good in ["a", "a/b", "journal/0001.seg", "..a/b.."] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\0"] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_folder_is_what_is_before_the_last_slash() {
        assert_eq!(folder_of("a"), "");
        assert_eq!(folder_of("a/b/c"), "a/b");
    }
}
