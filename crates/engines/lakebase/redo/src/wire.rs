//! Requests to a redo process, and its answers. `module/thalweg_redo.c` has the same forms.

use bytes::Bytes;
use thalweg_lakebase_wal::{Fork, PAGE_BYTES, Relation, Rmgr};
use thalweg_pg::PgLsn;

/// The bytes of a page.
pub type Page = Box<[u8; PAGE_BYTES]>;

const APPLY: u8 = 1;
const MASK: u8 = 2;
pub(crate) const DONE: u8 = 0;
/// Bytes of the fields of a request, behind its length.
const REQUEST_BYTES: usize = 24;
/// Bytes of the fields of a record.
const RECORD_BYTES: usize = 24;
/// Bytes of an answer with a page: its length, whether it is one, and the page.
pub(crate) const ANSWER_BYTES: usize = 5 + PAGE_BYTES;

/// A record that changes a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it begins.
    pub start: PgLsn,
    /// Where it ends; the page has this position afterwards.
    pub end: PgLsn,
    /// Its bytes, without the headers of the log's pages.
    pub bytes: Bytes,
}

/// A page that is to be made.
#[derive(Clone, Debug)]
pub struct PageRedo {
    pub relation: Relation,
    pub fork: Fork,
    pub block: u32,
    /// The page before the changes; `None`: it is empty, or the first change begins with an empty one.
    pub base: Option<Page>,
    /// The records that change it since, in order.
    pub changes: Vec<Change>,
}

fn put_head(out: &mut Vec<u8>, [op, has_page, fork, rmgr]: [u8; 4], block: u32, relation: Relation, records: usize) {
    out.extend_from_slice(&[op, has_page, fork, rmgr]);
    for field in [block, relation.tablespace, relation.database, relation.number, records as u32] {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

impl PageRedo {
    /// Appends the request.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let page = self.base.as_ref().map_or(0, |page| page.len());
        let records: usize = self.changes.iter().map(|change| RECORD_BYTES + change.bytes.len()).sum();
        out.extend_from_slice(&((REQUEST_BYTES + page + records) as u32).to_le_bytes());
        let head = [APPLY, u8::from(self.base.is_some()), self.fork.number(), 0];
        put_head(out, head, self.block, self.relation, self.changes.len());
        if let Some(page) = &self.base {
            out.extend_from_slice(&page[..]);
        }
        for change in &self.changes {
            out.extend_from_slice(&change.start.0.to_le_bytes());
            out.extend_from_slice(&change.end.0.to_le_bytes());
            out.extend_from_slice(&(change.bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(&change.bytes);
        }
    }
}

/// Appends a request for a page without what replay may leave different (`rm_mask` of the resource manager).
pub(crate) fn encode_mask(page: &[u8; PAGE_BYTES], rmgr: Rmgr, block: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&((REQUEST_BYTES + PAGE_BYTES) as u32).to_le_bytes());
    let nowhere = Relation { tablespace: 0, database: 0, number: 0 };
    put_head(out, [MASK, 1, 0, rmgr.0], block, nowhere, 0);
    out.extend_from_slice(page);
}
