//! The section of logs in the root of their unit: it leads to every object of the logs.

use crate::check::CheckError;
use crate::lists::{Form, Page};
use crate::logs::Loss;
use crate::run::{ObjectMeta, RunError};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, Durability, Encoder, LogId, Lsn, Millis, ObjectId};
use thalweg_manifest::Manifest;
use thalweg_storage::Storage;
use thalweg_unit::{self as unit, Claim, IndexId, Section, Stored};

/// The version of the section. Version 1 listed every object of every run.
const VERSION: u8 = 2;
const WITHOUT_LISTS: u8 = 1;
/// Earlier roots, which held nothing but logs, the oldest first: without marks by kind, as logs did not say their
/// durability; without the journal's term; with both.
const ROOT_VERSIONS: std::ops::RangeInclusive<u8> = 1..=3;

/// Incarnations below a mark may have lost positions. Each mark is of a set of logs that contains the next: `all` of
/// every log; `unsaid` of logs that are buffered or do not say their durability; `buffered` of logs that say they are
/// buffered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossMarks {
    all: LogId,
    unsaid: LogId,
    buffered: LogId,
}

impl LossMarks {
    /// The mark that counts for a log. A fork's ancestors are of its kind, so one mark is enough for its whole lineage.
    pub(crate) fn of(&self, said: Option<Durability>) -> LogId {
        match said {
            Some(Durability::Durable) => self.all,
            None => self.all.max(self.unsaid),
            Some(Durability::Buffered) => self.all.max(self.unsaid).max(self.buffered),
        }
    }

    /// Raises the mark of the logs that a loss may have hit. Every id that was given out until now is below `mark`.
    pub(crate) fn raise(&mut self, loss: Loss, mark: LogId) {
        match loss {
            Loss::Nothing => {}
            Loss::Buffered => self.buffered = mark,
            Loss::Unsaid => self.unsaid = mark,
            Loss::Everything => self.all = mark,
        }
    }
}

/// One object of a run, as the root or a list object names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunObject {
    pub(crate) meta: ObjectMeta,
    /// Data that was live when the root last wrote this number: all that a start knows of the object until it is
    /// counted. The ledger (`crate::ledger`) has the present number.
    pub(crate) live_bytes: u64,
    /// When dead data was first seen in it.
    pub(crate) dead_since: Option<Millis>,
}

impl RunObject {
    /// An object that was just built: all of it is live.
    pub(crate) fn new(meta: ObjectMeta) -> Self {
        Self { meta, live_bytes: meta.covered_bytes(), dead_since: None }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.meta.encode(out);
        out.put_varint(self.live_bytes);
        out.put_varint(self.dead_since.map_or(0, |at| at.0));
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let meta = ObjectMeta::decode(d)?;
        let live_bytes = d.varint()?;
        Ok(Self { meta, live_bytes, dead_since: Some(Millis(d.varint()?)).filter(|at| at.0 > 0) })
    }
}

/// Objects that one round or merge made; their key ranges do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Unique and growing; runs are ordered by time, and merging keeps the newest one's id.
    pub(crate) id: u64,
    /// The objects in the order of their keys.
    pub(crate) objects: Vec<RunObject>,
    /// The pages that hold them in list objects, in the same order: the root holds only the difference of `objects` to
    /// these.
    pub(crate) pages: Vec<Page>,
    /// The run as the root has it, until its list objects are read: [`Root::read_lists`].
    pub(crate) unread: Option<Form>,
}

impl Run {
    pub(crate) fn new(id: u64, objects: Vec<RunObject>) -> Self {
        Self { id, objects, pages: Vec::new(), unread: None }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.meta.data_bytes).sum()
    }
}

/// One object of the directory checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryObject {
    pub(crate) id: ObjectId,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The section of logs in the root of their unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Fixed when the data folder was made: clients and caches see it.
    pub(crate) chunk_bytes: u64,
    /// Everything in the journal below is settled and checkpointed.
    pub(crate) floor: Lsn,
    /// No log id (without shard bits) at or above was ever given out.
    pub(crate) id_ceiling: u64,
    pub(crate) next_run: u64,
    pub(crate) loss: LossMarks,
    /// Oldest first.
    pub(crate) runs: Vec<Run>,
    /// Oldest first: a newer record hides an older one.
    pub(crate) directory: Vec<DirectoryObject>,
}

impl Root {
    pub(crate) fn new(chunk_bytes: u64) -> Self {
        Self {
            chunk_bytes,
            floor: Lsn::ZERO,
            id_ceiling: 0,
            next_run: 1,
            loss: LossMarks::default(),
            runs: Vec::new(),
            directory: Vec::new(),
        }
    }

    /// The root of a unit, as this program or an earlier version wrote it.
    pub(crate) fn decode_unit(body: &[u8]) -> Result<unit::Root, DecodeError> {
        match body.first() {
            Some(version) if ROOT_VERSIONS.contains(version) => decode_earlier(body),
            _ => unit::Root::decode(body),
        }
    }

    /// The unit's root and the section of logs in a manifest, for a reader that changes nothing; `None` if nothing was
    /// ever committed.
    pub(crate) fn read(manifest: &dyn Manifest) -> Result<Option<(unit::Root, Self)>, CheckError> {
        let body = manifest.read()?.unwrap_or_default().body;
        Self::of_body(&body).map_err(CheckError::Root)
    }

    /// The unit's root and the section of logs that a manifest's body holds; `None` if the body is empty: nothing was
    /// ever committed.
    pub(crate) fn of_body(body: &[u8]) -> Result<Option<(unit::Root, Self)>, DecodeError> {
        if body.is_empty() {
            return Ok(None);
        }
        let unit = Self::decode_unit(body)?;
        // A copy or a check by the section of logs alone would leave out the objects that another index names.
        if let Some(other) = unit.sections.keys().find(|index| **index != IndexId::LOG) {
            return Err(DecodeError::Unknown { what: "index of a section", got: other.0.into() });
        }
        let section = unit.section()?.ok_or(DecodeError::Range("sections: that of logs is not there"))?;
        Ok(Some((unit, section)))
    }

    /// Numbers that must never be given out twice only grow, and runs stay in the order of their ids, which is that of
    /// time.
    ///
    /// # Panics
    ///
    /// If this root may not replace the one before.
    pub(crate) fn assert_follows(&self, before: &Self) {
        let ids = |root: &Self| (root.id_ceiling, root.next_run);
        let ((ceiling, next_run), (ceiling_before, next_run_before)) = (ids(self), ids(before));
        assert!(ceiling >= ceiling_before, "the ceiling of ids goes from {ceiling_before} back to {ceiling}");
        assert!(next_run >= next_run_before, "the number of runs goes from {next_run_before} back to {next_run}");
        let runs: Vec<u64> = self.runs.iter().map(|run| run.id).collect();
        let is_in_order = runs.is_sorted_by(|a, b| a < b) && runs.last().is_none_or(|last| *last < next_run);
        assert!(is_in_order, "runs below {next_run}, oldest first: {runs:?}");
    }

    /// Every object that the root names.
    pub(crate) fn object_ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.named().map(|(id, _)| id)
    }

    /// Every object that the root names, with its length in bytes: objects of runs, then list objects, then those of
    /// the directory.
    fn named(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        let of = |objects: &'_ [RunObject]| objects.iter().map(|o| (o.meta.id, o.meta.bytes())).collect::<Vec<_>>();
        let sealed = self.runs.iter().flat_map(|run| run.objects.iter()).map(|o| (o.meta.id, o.meta.bytes()));
        let pages = self.runs.iter().flat_map(|run| run.pages.iter()).map(|page| (page.id, page.bytes));
        let unread = self.runs.iter().filter_map(|run| run.unread.as_ref());
        let unread = unread.flat_map(move |form| of(&form.here).into_iter().chain(form.pages()));
        let directory = self.directory.iter().map(|object| (object.id, object.bytes));
        sealed.chain(pages).chain(unread).chain(directory)
    }

    /// Reads the list objects, one after the other. Until then runs are not known.
    pub(crate) fn read_lists(&mut self, storage: &Arc<dyn Storage>) -> Result<(), RunError> {
        let damaged = self.read_lists_behind_damage(storage)?;
        damaged.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Reads the list objects, and passes over those that are damaged: their objects are missing from the runs. Returns
    /// the damaged list objects with their errors; any other error ends the reading.
    pub(crate) fn read_lists_behind_damage(
        &mut self,
        storage: &Arc<dyn Storage>,
    ) -> Result<Vec<(ObjectId, RunError)>, RunError> {
        let mut damaged = Vec::new();
        for run in &mut self.runs {
            if let Some(form) = run.unread.take() {
                (run.objects, run.pages) = form.read(storage, &mut damaged)?;
            }
        }
        Ok(damaged)
    }
}

impl Section for Root {
    const INDEX: IndexId = IndexId::LOG;

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let LossMarks { all, unsaid, buffered } = self.loss;
        for n in [self.chunk_bytes, self.id_ceiling, self.next_run, all.0, unsaid.0, buffered.0] {
            out.put_varint(n);
        }
        out.put_varint(self.runs.len() as u64);
        for run in &self.runs {
            out.put_varint(run.id);
            match &run.unread {
                Some(form) => form.encode(&mut out),
                None => Form::of(&run.objects, &run.pages).encode(&mut out),
            }
        }
        out.put_varint(self.directory.len() as u64);
        for object in &self.directory {
            out.put_varint(object.id.0);
            out.put_varint(object.records);
            out.put_varint(object.bytes);
        }
        out
    }

    fn decode(floor: Lsn, body: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(body);
        let version = d.u8()?;
        if !(WITHOUT_LISTS..=VERSION).contains(&version) {
            return Err(DecodeError::Unknown { what: "version of the logs' section", got: version.into() });
        }
        let mut root = Self { floor, ..Self::new(d.varint()?) };
        (root.id_ceiling, root.next_run) = (d.varint()?, d.varint()?);
        root.loss = LossMarks { all: LogId(d.varint()?), unsaid: LogId(d.varint()?), buffered: LogId(d.varint()?) };
        root.decode_objects(d, version)
    }

    fn floor(&self) -> Lsn {
        self.floor
    }

    fn objects(&self) -> Vec<(ObjectId, u64)> {
        self.named().collect()
    }
}

impl Root {
    /// With the runs, as a section of this version has them, and the directory, which end every form.
    fn decode_objects(mut self, mut d: Decoder<'_>, version: u8) -> Result<Self, DecodeError> {
        for _ in 0..d.varint()? {
            let id = d.varint()?;
            let form = if version == WITHOUT_LISTS { Form::decode_here(&mut d)? } else { Form::decode(&mut d)? };
            self.runs.push(match form.has_pages() {
                true => Run { unread: Some(form), ..Run::new(id, Vec::new()) },
                false => Run::new(id, form.here),
            });
        }
        for _ in 0..d.varint()? {
            self.directory.push(DirectoryObject {
                id: ObjectId(d.varint()?),
                records: d.varint()?,
                bytes: d.varint()?,
            });
        }
        d.end()?;
        Ok(self)
    }
}

/// A root from before units had sections: it has the fields of the section, with those of the unit's root between them.
fn decode_earlier(body: &[u8]) -> Result<unit::Root, DecodeError> {
    let mut d = Decoder::new(body);
    let version = d.u8()?;
    let mut root = Root::new(d.varint()?);
    root.floor = Lsn(d.varint()?);
    let mut claim = Claim { durable: Lsn(d.varint()?), term: 0 };
    root.id_ceiling = d.varint()?;
    // The next object's number: owners have epochs now, and begin with numbers of their own.
    d.varint()?;
    root.next_run = d.varint()?;
    root.loss.all = LogId(d.varint()?);
    if version > 1 {
        (root.loss.unsaid, root.loss.buffered) = (LogId(d.varint()?), LogId(d.varint()?));
    }
    if version > 2 {
        claim.term = d.varint()?;
    }
    let root = root.decode_objects(d, WITHOUT_LISTS)?;
    let stored = Stored { floor: root.floor, body: root.encode().into() };
    Ok(unit::Root { epoch: 0, claim, sections: BTreeMap::from([(IndexId::LOG, stored)]) })
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use thalweg_base::Offset;

    fn sample() -> Root {
        let mut root = Root::new(4096);
        (root.floor, root.id_ceiling, root.next_run) = (Lsn(300), 5, 7);
        root.loss = LossMarks { all: LogId(64), unsaid: LogId(128), buffered: LogId(200) };
        root.directory.push(DirectoryObject { id: ObjectId(1), records: 2, bytes: 3 });
        root
    }

    #[test]
    fn the_bytes_are_pinned() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "02802005074080\
                         01c8010001010203"
        );
        assert_eq!(Root::decode(Lsn(300), &sample().encode()), Ok(sample()));
    }

    #[test]
    fn a_section_that_lists_every_object_is_read() {
        // Version 1: run 9 of object 3, whose metadata is 3 3 16 3 40 24 0 50 1 1 2, live 20, dead since 900.
        let body =
            [1, 0x80, 0x20, 5, 7, 0x40, 0x80, 1, 0xc8, 1, 1, 9, 1, 3, 3, 16, 3, 40, 24, 0, 50, 1, 1, 2, 20, 0x84, 7];
        let found = Root::decode(Lsn(300), &[&body[..], &[1, 1, 2, 3]].concat()).unwrap();
        let RunObject { meta, live_bytes, dead_since } = found.runs[0].objects[0];
        assert_eq!((meta.id, meta.end, meta.data_bytes, meta.messages), (ObjectId(3), Offset(40), 24, 2));
        assert_eq!((found.runs[0].id, live_bytes, dead_since), (9, 20, Some(Millis(900))));
        assert_eq!(Root { runs: Vec::new(), ..found.clone() }, sample());
        assert_eq!(Root::decode(Lsn(300), &found.encode()), Ok(found), "and is written in version 2");
        assert!(Root::decode(Lsn(300), &[3]).is_err(), "a newer one is refused");
    }

    #[test]
    fn roots_of_earlier_versions_are_read() {
        let three = [3, 0x80, 0x20, 0xac, 0x02, 0xad, 0x02, 5, 6, 7, 0x40, 0x80, 1, 0xc8, 1, 9, 0, 1, 1, 2, 3];
        let two = [2, 0x80, 0x20, 0xac, 0x02, 0xad, 0x02, 5, 6, 7, 0x40, 0x80, 1, 0xc8, 1, 0, 1, 1, 2, 3];
        let one = [1, 0x80, 0x20, 0xac, 0x02, 0xad, 0x02, 5, 6, 7, 0x40, 0, 1, 1, 2, 3];
        let only_all = Root { loss: LossMarks { all: LogId(64), ..LossMarks::default() }, ..sample() };
        for (body, term, section) in [(&three[..], 9, sample()), (&two, 0, sample()), (&one, 0, only_all)] {
            let (unit, found) = Root::of_body(body).unwrap().unwrap();
            assert_eq!((unit.epoch, unit.claim), (0, Claim { durable: Lsn(301), term }));
            assert_eq!(found, section);
        }
        assert_eq!(Root::of_body(&[]), Ok(None), "acquired, and nothing was committed");
        let mut other = unit::Root::default();
        assert!(Root::of_body(&other.encode()).is_err(), "a root without logs is not an empty one");
        other.put(&sample());
        other.sections.insert(IndexId(2), Stored::default());
        assert!(Root::of_body(&other.encode()).is_err(), "a copy of the logs alone would not be whole");
    }

    #[test]
    fn each_loss_concerns_the_kinds_that_it_may_have_hit() {
        const KINDS: [Option<Durability>; 3] = [Some(Durability::Durable), None, Some(Durability::Buffered)];
        for (loss, hit) in [
            (Loss::Nothing, [0, 0, 0]),
            (Loss::Buffered, [0, 0, 9]),
            (Loss::Unsaid, [0, 9, 9]),
            (Loss::Everything, [9, 9, 9]),
        ] {
            let mut marks = LossMarks::default();
            marks.raise(loss, LogId(9));
            assert_eq!(KINDS.map(|said| marks.of(said).0), hit, "{loss:?}");
        }
    }
}
