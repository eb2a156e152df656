//! stub
use crate::Predicate;
use std::sync::Arc;
#[derive(Default)]
pub struct Index<K> {
    all: Vec<(K, Option<Arc<Predicate>>)>,
}
impl<K: Copy + Ord> Index<K> {
    pub fn new() -> Self {
        Self { all: Vec::new() }
    }
    pub fn insert(&mut self, k: K, p: Option<&Arc<Predicate>>) {
        self.all.push((k, p.cloned()));
    }
    pub fn matching(&mut self, row: &[Option<&[u8]>], out: &mut Vec<K>) {
        out.extend(self.all.iter().filter(|(_, p)| p.as_ref().is_none_or(|p| p.holds(row))).map(|(k, _)| *k));
    }
}
