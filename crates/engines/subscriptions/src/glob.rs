//! Patterns over stream paths: `*` is one segment, or part of one, `**` any number of segments, none included.

/// Whether `path` matches.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    // The usual walk with one point to backtrack to: linear in practice, pattern times path at worst.
    let (mut p, mut s, mut back) = (0, 0, None);
    while s < path.len() {
        match pattern.get(p) {
            Some(&"**") => {
                back = Some((p, s));
                p += 1;
            }
            Some(segment) if segment_matches(segment.as_bytes(), path[s].as_bytes()) => {
                p += 1;
                s += 1;
            }
            _ => match back {
                Some((star, at)) => {
                    back = Some((star, at + 1));
                    (p, s) = (star + 1, at + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|segment| *segment == "**")
}

fn segment_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut s, mut back) = (0, 0, None);
    while s < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p, s));
                p += 1;
            }
            Some(byte) if *byte == text[s] => {
                p += 1;
                s += 1;
            }
            _ => match back {
                Some((star, at)) => {
                    back = Some((star, at + 1));
                    (p, s) = (star + 1, at + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_star_is_one_segment() {
        assert!(matches("events/*", "events/a"));
        assert!(!matches("events/*", "events"));
        assert!(!matches("events/*", "events/a/b"));
        assert!(!matches("events/*", "other/a"));
        assert!(matches("events/a-*-z", "events/a-b-z"));
        assert!(!matches("events/a-*-z", "events/a-b"));
    }

    #[test]
    fn two_stars_are_any_number_of_segments() {
        for path in ["a", "a/b", "a/b/c"] {
            assert!(matches("**", path));
            assert!(matches("a/**", path));
        }
        assert!(matches("a/**/z", "a/z"));
        assert!(matches("a/**/z", "a/b/c/z"));
        assert!(matches("**/b/**/d", "a/b/b/c/d"));
        assert!(!matches("a/**/z", "a/b"));
    }

    proptest! {
        #[test]
        fn a_path_matches_itself(path in "[a-c]{1,3}(/[a-c]{1,3}){0,3}") {
            prop_assert!(matches(&path, &path));
            let pattern = format!("**/{path}");
            prop_assert!(matches(&pattern, &path));
        }
    }
}
