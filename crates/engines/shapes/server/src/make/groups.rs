//! Rows of a scan that several shapes have, gathered by which shapes these are: each is kept once.

use std::collections::HashMap;
use thalweg_log::Lengths;

/// A group that has grown so far is left as it is, and another one begun.
const GROUP_BYTES: usize = 256 << 10;
/// Groups that are open at once.
const GROUPS_MAX: usize = 1024;

/// Rows that the same shapes have.
#[derive(Debug)]
pub(super) struct Group {
    /// Places of the shapes in the scan, ascending.
    pub(super) of: Box<[u32]>,
    pub(super) rows: Vec<u8>,
    pub(super) lengths: Lengths,
}

#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// The last group of these shapes.
    open: HashMap<Box<[u32]>, usize>,
    /// The group of the last row: the next one is often of the same.
    last: usize,
}

impl Groups {
    /// Gathers a row of these shapes. How much memory that takes, about; `None`: there are too many groups for another
    /// one.
    pub(super) fn add(&mut self, of: &[u32], row: &[u8]) -> Option<usize> {
        let at = match self.all.get(self.last) {
            Some(group) if *group.of == *of => Some(self.last),
            _ => self.open.get(of).copied(),
        };
        let (at, new) = match at.filter(|at| self.all[*at].rows.len() < GROUP_BYTES) {
            Some(at) => (at, 0),
            None if self.all.len() >= GROUPS_MAX => return None,
            None => {
                self.all.push(Group { of: of.into(), rows: Vec::new(), lengths: Lengths::default() });
                self.open.insert(of.into(), self.all.len() - 1);
                (self.all.len() - 1, 2 * size_of_val(of))
            }
        };
        let group = &mut self.all[at];
        group.rows.extend_from_slice(row);
        group.lengths.push(u32::try_from(row.len()).unwrap_or(u32::MAX));
        self.last = at;
        Some(row.len() + new)
    }

    /// Takes all groups, in the order in which they began.
    pub(super) fn take(&mut self) -> Vec<Group> {
        self.open.clear();
        self.last = 0;
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_same_shapes_lie_together() {
        let mut groups = Groups::default();
        for (of, row) in [(&[0, 1][..], "a"), (&[1, 2], "b"), (&[0, 1], "cc"), (&[0, 1], "d"), (&[1, 2], "e")] {
            assert!(groups.add(of, row.as_bytes()).is_some());
        }
        let all = groups.take();
        let seen: Vec<_> = all.iter().map(|group| (&group.of[..], &group.rows[..])).collect();
        assert_eq!(seen, [(&[0, 1][..], &b"accd"[..]), (&[1, 2], b"be")]);
        assert_eq!(all[0].lengths.iter().collect::<Vec<_>>(), [1, 2, 1]);
        assert!(groups.take().is_empty());
    }

    #[test]
    fn groups_have_a_size_and_a_number() {
        let mut groups = Groups::default();
        let row = vec![7; GROUP_BYTES / 2];
        (0..5).for_each(|_| assert!(groups.add(&[0, 1], &row).is_some()));
        let sizes: Vec<usize> = groups.take().iter().map(|group| group.rows.len()).collect();
        assert_eq!(sizes, [GROUP_BYTES, GROUP_BYTES, GROUP_BYTES / 2]);
        for n in 0..GROUPS_MAX as u32 {
            assert!(groups.add(&[n, n + 1], b"x").is_some());
        }
        assert_eq!(groups.add(&[0, 9], b"x"), None);
        assert_eq!(groups.add(&[5, 6], b"x"), Some(1), "those that are open go on");
    }
}
