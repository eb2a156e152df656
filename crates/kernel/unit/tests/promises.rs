//! The promises of a unit to its indexes, one claim at a time.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod support;

use std::sync::Arc;
use support::{One, Two};
use thalweg_base::{Lsn, ObjectId};
use thalweg_manifest::{Manifest, ManifestError, MemoryManifest};
use thalweg_storage::{MemoryStorage, Storage, StorageError};
use thalweg_unit::{Claim, EPOCH_MAX, Index, OpenError, Opening, Root, Section, Unit, epoch_of, object_id};

#[derive(Clone, Default)]
struct Parts {
    storage: Arc<MemoryStorage>,
    manifest: Arc<MemoryManifest>,
}

impl Parts {
    fn read(&self) -> Result<Opening, OpenError> {
        Opening::read(self.storage.clone() as _, self.manifest.clone() as _, Root::decode)
    }

    /// Both indexes, in force.
    fn open(&self) -> (Index<One>, Index<Two>) {
        let mut opening = self.read().unwrap();
        let (one, two) = (opening.section::<One>().unwrap(), opening.section::<Two>().unwrap());
        let unit = opening.acquire().unwrap();
        let (one, two) = (one.unwrap_or_default(), two.unwrap_or_default());
        let (one, two) = (Index::new(unit.clone(), one), Index::new(unit, two));
        begin(&one);
        (one, two)
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.storage.list().unwrap()
    }
}

fn make(unit: &Unit) -> (ObjectId, u64) {
    let id = unit.new_object();
    let mut writer = unit.storage().create(id).unwrap();
    writer.write(b"content").unwrap();
    (id, writer.finish().unwrap())
}

/// An owner's first edit, before which it makes nothing.
fn begin(index: &Index<One>) {
    let edited = index.edit(Vec::new(), |_, claim| claim.term += 1).unwrap();
    assert!(edited.0.is_empty());
}

/// One more edit, which names an object more.
fn add<const N: u8>(index: &Index<support::Names<N>>) -> ObjectId {
    let made = make(index.unit());
    let named = |section: &mut support::Names<N>, _: &mut Claim| {
        section.objects.push(made);
        section.edits += 1;
    };
    index.unit().discard(&index.edit(vec![made.0], named).unwrap());
    made.0
}

#[test]
fn indexes_edit_their_own_sections_and_the_slowest_says_what_the_journal_must_hold() {
    let parts = Parts::default();
    let (one, two) = parts.open();
    let first = [add(&one), add(&one), add(&one)];
    let second = add(&two);
    assert_eq!((one.section().edits, two.section().edits), (3, 1));
    assert_eq!(one.unit().bounds().floor, Lsn(1), "the floors are 3 and 1");
    assert_eq!(one.unit().hold().cut.objects.len(), 4);
    drop((one, two));
    let (one, two) = parts.open();
    assert_eq!(one.section().objects.iter().map(|(id, _)| *id).collect::<Vec<_>>(), first);
    assert_eq!(two.section().objects[0].0, second);
}

#[test]
fn orphans_are_those_of_earlier_owners_that_no_section_names_entered_or_not() {
    let parts = Parts::default();
    let (one, two) = parts.open();
    let named = [add(&one), add(&two)];
    let orphan = make(one.unit()).0;
    drop((one, two));
    let mut opening = parts.read().unwrap();
    opening.section::<One>().unwrap();
    opening.section::<Two>().unwrap();
    let unit = opening.acquire().unwrap();
    let (own, _) = make(&unit);
    assert_eq!(parts.objects(), [named[0], named[1], orphan, own]);
    // Neither index has put its section in force yet.
    unit.remove_orphans().unwrap();
    assert_eq!(parts.objects(), [named[0], named[1], own]);
    assert_eq!(unit.hold().cut.objects.len(), 2, "a cut has them, too");
}

#[test]
fn a_section_that_no_index_asks_for_keeps_the_unit_from_being_acquired() {
    let parts = Parts::default();
    let (one, two) = parts.open();
    add(&one);
    add(&two);
    let before = parts.manifest.load().unwrap();
    let mut opening = parts.read().unwrap();
    opening.section::<One>().unwrap();
    assert!(matches!(opening.acquire(), Err(OpenError::UnknownIndex(2))));
    assert_eq!(parts.manifest.load().unwrap(), before, "the owner is the same");
    add(&one);
}

#[test]
#[should_panic(expected = "IndexId(1) of a unit has one owner")]
fn two_owners_of_one_section_are_a_fault_of_the_program() {
    let parts = Parts::default();
    let (one, _) = parts.open();
    Index::new(one.unit().clone(), One::default());
}

#[test]
fn an_older_root_or_one_that_lacks_an_object_is_refused_and_its_owner_stays() {
    let parts = Parts::default();
    let (one, _) = parts.open();
    let object = add(&one);
    let newer = object_id(one.unit().epoch() + 1, 1);
    parts.storage.create(newer).unwrap().finish().unwrap();
    assert!(matches!(parts.read().err(), Some(OpenError::OlderRoot { object, .. }) if object == newer));
    parts.storage.remove(newer).unwrap();
    parts.storage.remove(object).unwrap();
    let refused = parts.read().unwrap().section::<One>().err();
    assert!(matches!(refused, Some(OpenError::Storage(StorageError::Missing(missing))) if missing == object));
    parts.storage.create(object).unwrap().finish().unwrap();
    add(&one);
    // Objects without any manifest.
    let lost = Parts { manifest: Arc::default(), ..parts };
    assert!(matches!(lost.read().err(), Some(OpenError::RootMissing { objects: 2 })));
    lost.manifest.acquire(0).unwrap();
    assert!(matches!(lost.read().err(), Some(OpenError::RootMissing { .. })), "an owner alone names nothing");
}

#[test]
fn a_root_that_changed_since_it_was_read_is_not_taken_over() {
    let parts = Parts::default();
    let (one, _) = parts.open();
    let mut late = parts.read().unwrap();
    late.section::<One>().unwrap();
    late.section::<Two>().unwrap();
    add(&one);
    assert!(matches!(late.acquire(), Err(OpenError::Changed)));
    let (again, _) = parts.open();
    assert_eq!(again.section().edits, 1);
    let refused = one.edit(Vec::new(), |section, _| section.edits += 1);
    assert!(matches!(refused, Err(ManifestError::Fenced { .. })), "{refused:?}");
}

#[test]
fn what_is_held_outlives_the_edit_that_drops_it() {
    let parts = Parts::default();
    let (one, _) = parts.open();
    let object = add(&one);
    let held = one.unit().hold();
    let again = one.unit().hold();
    let dropped = one.edit(Vec::new(), |section, _| section.objects.clear()).unwrap();
    one.unit().discard(&dropped);
    drop(held);
    assert_eq!(again.read(object, 0..7).unwrap(), "content");
    drop(again);
    assert_eq!(parts.objects(), []);
}

#[test]
fn an_edit_that_was_not_made_removes_nothing_that_the_root_in_force_names() {
    let parts = Parts::default();
    let (one, _two) = parts.open();
    let kept = add(&one);
    let another = make(one.unit()).0;
    // Another owner has acquired the unit: every commit of this one is refused.
    parts
        .read()
        .map(|mut opening| {
            let _ = (opening.section::<One>().unwrap(), opening.section::<Two>().unwrap());
            opening.acquire().unwrap()
        })
        .unwrap();
    let refused = one.edit(vec![kept, another], |section, _| section.edits += 1).unwrap_err();
    assert!(matches!(refused, ManifestError::Fenced { .. }), "{refused}");
    assert_eq!(parts.objects(), [kept, another], "what was made for it is an orphan, which the next owner finds");
}

/// A root whose commits are made, while their owner hears only that somebody has acquired it since.
struct Overtaken(Arc<MemoryManifest>);

impl Manifest for Overtaken {
    fn read(&self) -> Result<Option<thalweg_manifest::Root>, ManifestError> {
        self.0.read()
    }

    fn load(&self) -> Result<Option<thalweg_manifest::Root>, ManifestError> {
        self.0.load()
    }

    fn acquire(&self, above: u64) -> Result<thalweg_manifest::Root, ManifestError> {
        self.0.acquire(above)
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        self.0.commit(epoch, expected, body)?;
        let found = self.0.acquire(epoch)?.epoch;
        Err(ManifestError::Fenced { epoch, found })
    }
}

#[test]
fn an_edit_whose_owner_was_deposed_removes_nothing_that_the_next_owner_may_name() {
    let parts = Parts::default();
    // The owner's first edit is an ordinary one, so that it may make objects.
    drop(parts.open());
    let overtaken: Arc<dyn Manifest> = Arc::new(Overtaken(Arc::clone(&parts.manifest)));
    let mut opening = Opening::read(parts.storage.clone() as _, overtaken, Root::decode).unwrap();
    let one = opening.section::<One>().unwrap().unwrap_or_default();
    let _ = opening.section::<Two>().unwrap();
    let index = Index::new(opening.acquire().unwrap(), one);
    let made = make(index.unit());
    let error = index.edit(vec![made.0], |section, _| section.objects.push(made)).unwrap_err();
    assert!(matches!(error, ManifestError::Fenced { .. }), "{error}");
    let (one, _) = parts.open();
    assert_eq!(one.section().objects, [made], "the edit was made before the unit was taken over");
    assert!(parts.objects().contains(&made.0));
}

#[test]
fn a_copy_of_the_root_in_another_manifest_begins_above_its_epoch() {
    let parts = Parts::default();
    for _ in 0..5 {
        add(&parts.open().0);
    }
    let cut = parts.open().0.unit().hold().cut.clone();
    let copy = Parts { manifest: Arc::default(), ..parts };
    let owner = copy.manifest.acquire(0).unwrap();
    copy.manifest.commit(owner.epoch, owner.version, &cut.root).unwrap();
    let (one, _) = copy.open();
    let newest = one.section().objects().into_iter().map(|(id, _)| epoch_of(id)).max().unwrap();
    assert!(one.unit().epoch() > newest, "{} after {newest}", one.unit().epoch());
}

#[test]
fn a_unit_without_epochs_left_is_refused_and_its_owner_stays() {
    let parts = Parts::default();
    parts.manifest.acquire(EPOCH_MAX - 1).unwrap();
    assert!(matches!(parts.read().unwrap().acquire(), Err(OpenError::Epochs(EPOCH_MAX))));
    assert_eq!(parts.manifest.load().unwrap().unwrap().epoch, EPOCH_MAX);
}
