//! Tests of the guarantees of list objects.

use super::page::{decode_page, encode_page};
use super::*;
use crate::root::{Root, Run};
use crate::run::ObjectMeta;
use proptest::prelude::*;
use thalweg_base::{LogId, Lsn, Offset};
use thalweg_storage::MemoryStorage;
use thalweg_unit::Section as _;

fn object(id: u64) -> RunObject {
    RunObject::new(ObjectMeta {
        id: ObjectId(id),
        first: (LogId(id), Offset(16)),
        last: LogId(id),
        end: Offset(300),
        data_bytes: 280,
        reference_bytes: 4,
        index_bytes: 200,
        entries: 2,
        logs: 1,
        messages: 3,
    })
}

pub(crate) fn samples() -> Vec<Vec<u8>> {
    vec![encode_page(ObjectId(1), &[object(3), object(200)])]
}

fn page(id: u64, objects: &[RunObject]) -> Page {
    Page { id: ObjectId(id), bytes: 90, objects: objects.into() }
}

/// One run: of two pages with two objects each the second object is gone, the third was noted, and two objects have
/// come.
pub(crate) fn sample_root() -> Root {
    let listed = [object(2), object(4), object(6), object(8)];
    let noted = RunObject { live_bytes: 70, dead_since: Some(Millis(900)), ..object(6) };
    let pages = vec![page(50, &listed[..2]), page(51, &listed[2..])];
    let mut root = Root::new(4096);
    root.runs.push(Run { pages, ..Run::new(7, vec![object(1), object(2), object(5), noted, object(8)]) });
    root
}

#[test]
fn the_bytes_of_a_list_are_pinned() {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let bytes = encode_page(ObjectId(1), &[object(3), object(200)]);
    assert_eq!(hex(&bytes), PAGE);
    assert_eq!(*decode_page(ObjectId(1), &bytes).unwrap().objects, [object(3), object(200)]);
    let root = sample_root();
    let mut form = Vec::new();
    Form::of(&root.runs[0].objects, &root.runs[0].pages).encode(&mut form);
    assert_eq!(hex(&form), FORM);
}

#[test]
fn a_root_with_lists_reads_back_once_its_lists_are_read() {
    let root = sample_root();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut packed = root.clone();
    for page in &mut packed.runs[0].pages {
        let bytes = encode_page(page.id, &page.objects);
        page.bytes = bytes.len() as u64;
        let mut writer = storage.create(page.id).unwrap();
        writer.write(&bytes).unwrap();
        writer.finish().unwrap();
    }
    let mut read = Root::decode(Lsn::ZERO, &packed.encode()).unwrap();
    assert_eq!(read.encode(), packed.encode(), "even before that it is written as it was");
    let named = |root: &Root| root.objects();
    assert_eq!(named(&read).len(), 4, "two objects, and two lists");
    read.read_lists(&storage).unwrap();
    assert_eq!(read, packed);
    assert_eq!(named(&read).len(), 7);
    storage.remove(ObjectId(50)).unwrap();
    let mut read = Root::decode(Lsn::ZERO, &packed.encode()).unwrap();
    assert!(read.clone().read_lists(&storage).is_err(), "objects of a run are not known");
    assert_eq!(read.read_lists_behind_damage(&storage).unwrap().len(), 1);
    let ids: Vec<u64> = read.runs[0].objects.iter().map(|object| object.meta.id.0).collect();
    assert_eq!(ids, [1, 5, 6, 8], "what the other list has, and the root");
    assert_eq!(read.runs[0].objects[2].dead_since, Some(Millis(900)));
}

#[test]
fn a_list_that_is_cut_short_anywhere_is_refused() {
    let whole = &samples()[0];
    for len in 0..whole.len() {
        let read = decode_page(ObjectId(1), &whole[..len]);
        assert!(matches!(read, Err(RunError::Corrupt { .. })), "{len} bytes: {read:?}");
    }
}

#[test]
fn positions_that_are_in_no_list_are_refused() {
    let mut bytes = Vec::new();
    let root = sample_root();
    Form::of(&root.runs[0].objects, &root.runs[0].pages).encode(&mut bytes);
    let gone_at = 7;
    assert_eq!(bytes[gone_at..gone_at + 2], [1, 1], "one object is gone, at position 1");
    for (position, is_there) in [(0, true), (3, true), (4, false), (100, false)] {
        bytes[gone_at + 1] = position;
        assert_eq!(Form::decode(&mut Decoder::new(&bytes)).is_ok(), is_there, "{position}");
    }
}

/// A storage with a root in it whose lists are packed after each change.
struct Packed {
    storage: Arc<dyn Storage>,
    root: Root,
    next: u64,
    written: u64,
    options: ListOptions,
}

impl Packed {
    fn new(options: ListOptions) -> Self {
        let storage = Arc::new(MemoryStorage::new());
        Self { storage, root: Root::new(4096), next: 1 << 32, written: 0, options }
    }

    fn pack(&mut self) {
        let pages = |root: &Root| root.runs.iter().flat_map(|run| run.pages.clone()).collect::<Vec<_>>();
        let before = pages(&self.root);
        let mut new_object = || {
            self.next += 1;
            ObjectId(self.next)
        };
        let mut packer =
            Packer { storage: &self.storage, options: self.options, new_object: &mut new_object, made: Vec::new() };
        packer.pack(&mut self.root);
        let made = packer.made;
        let after = pages(&self.root);
        assert!(made.iter().all(|id| after.iter().any(|page| page.id == *id)), "nothing is made in vain");
        self.written += after.iter().filter(|page| made.contains(&page.id)).map(|page| page.bytes).sum::<u64>();
        self.written += self.root.encode().len() as u64;
        for page in before.iter().filter(|page| !after.contains(page)) {
            self.storage.remove(page.id).expect("memory is there");
        }
    }

    fn check(&self) {
        let mut read = Root::decode(Lsn::ZERO, &self.root.encode()).expect("it was just encoded");
        read.read_lists(&self.storage).expect("its lists are there");
        let known = |run: &Run| -> Vec<_> { run.objects.iter().map(|o| (o.meta, o.dead_since)).collect() };
        assert_eq!(
            read.runs.iter().map(known).collect::<Vec<_>>(),
            self.root.runs.iter().map(known).collect::<Vec<_>>()
        );
        assert_eq!(read.encode(), self.root.encode());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_changes_of_lists_read_back_and_the_root_stays_small(seed: u64, root_bytes in 0..2000u64, page_objects in 1..40usize) {
        let mut random = oorandom::Rand64::new(u128::from(seed));
        let mut packed = Packed::new(ListOptions { root_bytes, page_objects });
        let mut next = 0;
        for step in 0..60u64 {
            let mut runs = std::mem::take(&mut packed.root.runs);
            match random.rand_range(0..6) {
                0 | 1 => {
                    let count = random.rand_range(1..60);
                    runs.push(Run::new(step, (0..count).map(|n| object(1 + n * 1000 + random.rand_range(0..900))).collect()));
                    next += count;
                }
                2 if runs.len() > 1 => {
                    let (b, a) = (runs.pop().unwrap(), runs.pop().unwrap());
                    let mut objects = [a.objects, b.objects].concat();
                    objects.sort_by_key(|object| object.meta.first);
                    objects.dedup_by_key(|object| object.meta.first);
                    runs.push(Run::new(step, objects));
                }
                n if !runs.is_empty() => {
                    let at = random.rand_range(0..runs.len() as u64) as usize;
                    let run = &mut runs[at];
                    for _ in 0..random.rand_range(1..10) {
                        if run.objects.is_empty() {
                            continue;
                        }
                        let at = random.rand_range(0..run.objects.len() as u64) as usize;
                        match n {
                            3 => run.objects[at].dead_since = Some(Millis(step + 1)),
                            4 => drop(run.objects.remove(at)),
                            // Written once more, under the same first key.
                            _ => run.objects[at].meta.id = ObjectId((1 << 20) + next + step * 100),
                        }
                        next += 1;
                    }
                }
                _ => {}
            }
            packed.root.runs = runs;
            packed.pack();
            packed.check();
            let pages: usize = packed.root.runs.iter().map(|run| run.pages.len()).sum();
            let runs = packed.root.runs.len();
            let bound = root_bytes as usize + 13 * pages + 16 * runs + 100;
            prop_assert!(packed.root.encode().len() <= bound, "{} bytes, {pages} pages, {runs} runs", packed.root.encode().len());
        }
    }
}

#[test]
fn with_100_000_objects_the_root_stays_small_and_edits_write_little() {
    let mut packed = Packed::new(ListOptions::default());
    let of = |ids: std::ops::Range<u64>| ids.map(|id| object(id * 10)).collect::<Vec<_>>();
    packed.root.runs.push(Run::new(1, of(0..90_000)));
    for run in 2..40 {
        packed.root.runs.push(Run::new(run, of(0..263)));
    }
    packed.pack();
    packed.check();
    assert!(packed.root.encode().len() < 64 << 10, "{} bytes", packed.root.encode().len());
    // Objects die, are dropped, and are written once more, all over.
    let mut random = oorandom::Rand64::new(7);
    const EDITS: u64 = 60;
    const CHANGES: u64 = 50;
    packed.written = 0;
    for edit in 0..EDITS {
        for change in edit * CHANGES..(edit + 1) * CHANGES {
            let run = &mut packed.root.runs[if change % 4 == 0 { 5 } else { 0 }];
            let at = random.rand_range(0..run.objects.len() as u64) as usize;
            match change % 3 {
                0 => run.objects[at].dead_since = Some(Millis(1_700_000_000_000 + edit)),
                1 if run.objects.len() > 1 => drop(run.objects.remove(at)),
                _ => run.objects[at].meta.id = ObjectId((1 << 50) + change),
            }
        }
        packed.pack();
        assert!(packed.root.encode().len() < 64 << 10, "{} bytes", packed.root.encode().len());
    }
    packed.check();
    // The root, and what a change costs in pages: at most one of about 50 KiB, and here a tenth.
    let (root, lists) = (packed.root.encode().len() as u64, packed.written / EDITS);
    println!("{root} bytes in the root, {lists} written by an edit of {CHANGES} objects");
    assert!(lists < (64 << 10) + CHANGES * (8 << 10), "{lists} bytes on average");
}

#[test]
fn a_list_that_cannot_be_written_stays_in_the_root() {
    struct Full(MemoryStorage);
    impl Storage for Full {
        fn create(&self, object: ObjectId) -> Result<Box<dyn thalweg_storage::ObjectWriter>, StorageError> {
            if self.0.list()?.len() == 2 { Err(StorageError::NoSpace(object)) } else { self.0.create(object) }
        }
        fn try_read(
            &self,
            object: ObjectId,
            range: std::ops::Range<u64>,
        ) -> Option<Result<bytes::Bytes, StorageError>> {
            self.0.try_read(object, range)
        }
        fn read(
            &self,
            object: ObjectId,
            range: std::ops::Range<u64>,
        ) -> thalweg_base::Ticket<Result<bytes::Bytes, StorageError>> {
            self.0.read(object, range)
        }
        fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
            self.0.len(object)
        }
        fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
            self.0.remove(object)
        }
        fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
            self.0.list()
        }
    }
    let mut packed = Packed::new(ListOptions { root_bytes: 100, page_objects: 10 });
    packed.storage = Arc::new(Full(MemoryStorage::new()));
    packed.root.runs.push(Run::new(1, (1..100).map(object).collect()));
    packed.pack();
    packed.check();
    assert!(packed.root.runs[0].pages.is_empty());
    assert_eq!(packed.storage.list(), Ok(Vec::new()), "what was written in vain is removed");
}

const PAGE: &str = "544857474c4953540100000000000000010000000000000002000000000000000\
    3031003ac02980204c8010201039c0200c801c80110c801ac02980204c8010201039c0200facdce82";
const FORM: &str = "02325a02335a02010101024684070201011001ac02980204c8010201039c020005051005ac02980204c8010201039c0200";
