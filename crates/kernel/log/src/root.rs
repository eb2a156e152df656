//! The content of the manifest: the one root from which everything else is found.

use crate::logs::Loss;
use crate::run::ObjectMeta;
use thalweg_base::{DecodeError, Decoder, Durability, Encoder, LogId, Lsn, Millis, ObjectId};
use thalweg_journal::Bounds;

const VERSION: u8 = 3;
/// Without the journal's term.
const VERSION_2: u8 = 2;
/// Without marks by kind, too: logs did not say what they promise.
const VERSION_1: u8 = 1;

/// Incarnations below may have lost positions: of all logs, of those that do not say what they promise, and of buffered ones.
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

    /// Every id that was given out until now is below `mark`.
    pub(crate) fn raise(&mut self, loss: Loss, mark: LogId) {
        match loss {
            Loss::Nothing => {}
            Loss::Buffered => self.buffered = mark,
            Loss::Unsaid => self.unsaid = mark,
            Loss::Everything => self.all = mark,
        }
    }
}

/// One sealed object of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) meta: ObjectMeta,
    /// Data that is still wanted, as last counted.
    pub(crate) live_bytes: u64,
    /// When dead data was first seen in it.
    pub(crate) dead_since: Option<Millis>,
}

/// Objects that one round or merge made; their key ranges do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Unique and growing; runs are ordered by time, and merging keeps the newest one's id.
    pub(crate) id: u64,
    pub(crate) objects: Vec<Sealed>,
}

impl Run {
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

/// The root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Fixed when the data folder was made: clients and caches see it.
    pub(crate) chunk_bytes: u64,
    /// Everything in the journal below is settled and checkpointed.
    pub(crate) floor: Lsn,
    /// Durable for certain when this root was written.
    pub(crate) known_durable: Lsn,
    /// The term in which the journal was open then; zero if that is not known.
    pub(crate) journal_term: u64,
    /// No log id (without shard bits) at or above was ever given out.
    pub(crate) id_ceiling: u64,
    pub(crate) next_object: u64,
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
            known_durable: Lsn::ZERO,
            journal_term: 0,
            id_ceiling: 0,
            next_object: 1,
            next_run: 1,
            loss: LossMarks::default(),
            runs: Vec::new(),
            directory: Vec::new(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for n in [
            self.chunk_bytes,
            self.floor.0,
            self.known_durable.0,
            self.id_ceiling,
            self.next_object,
            self.next_run,
            self.loss.all.0,
            self.loss.unsaid.0,
            self.loss.buffered.0,
            self.journal_term,
        ] {
            out.put_varint(n);
        }
        out.put_varint(self.runs.len() as u64);
        for run in &self.runs {
            out.put_varint(run.id);
            out.put_varint(run.objects.len() as u64);
            for object in &run.objects {
                object.meta.encode(&mut out);
                out.put_varint(object.live_bytes);
                out.put_varint(object.dead_since.map_or(0, |at| at.0));
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

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(body);
        let version = d.u8()?;
        if !(VERSION_1..=VERSION).contains(&version) {
            return Err(DecodeError::Unknown { what: "root version", got: version.into() });
        }
        let mut root = Self::new(d.varint()?);
        root.floor = Lsn(d.varint()?);
        root.known_durable = Lsn(d.varint()?);
        root.id_ceiling = d.varint()?;
        root.next_object = d.varint()?;
        root.next_run = d.varint()?;
        root.loss.all = LogId(d.varint()?);
        if version != VERSION_1 {
            (root.loss.unsaid, root.loss.buffered) = (LogId(d.varint()?), LogId(d.varint()?));
        }
        if version != VERSION_1 && version != VERSION_2 {
            root.journal_term = d.varint()?;
        }
        for _ in 0..d.varint()? {
            let mut run = Run { id: d.varint()?, objects: Vec::new() };
            for _ in 0..d.varint()? {
                let meta = ObjectMeta::decode(&mut d)?;
                let live_bytes = d.varint()?;
                let dead_since = Some(Millis(d.varint()?)).filter(|at| at.0 > 0);
                run.objects.push(Sealed { meta, live_bytes, dead_since });
            }
            root.runs.push(run);
        }
        for _ in 0..d.varint()? {
            root.directory.push(DirectoryObject {
                id: ObjectId(d.varint()?),
                records: d.varint()?,
                bytes: d.varint()?,
            });
        }
        d.end()?;
        Ok(root)
    }

    /// What the journal must hold.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { floor: self.floor, known_durable: self.known_durable, term: self.journal_term }
    }

    /// Every object that the root names, and its length in bytes.
    pub(crate) fn lengths(&self) -> Vec<(ObjectId, u64)> {
        let sealed = self.runs.iter().flat_map(|run| run.objects.iter().map(|o| (o.meta.id, o.meta.bytes())));
        sealed.chain(self.directory.iter().map(|object| (object.id, object.bytes))).collect()
    }

    /// Every object that the root names.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let sealed = self.runs.iter().flat_map(|run| run.objects.iter().map(|object| object.meta.id));
        sealed.chain(self.directory.iter().map(|object| object.id))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn sample() -> Root {
        let mut root = Root::new(4096);
        (root.floor, root.known_durable, root.journal_term) = (Lsn(300), Lsn(301), 9);
        (root.id_ceiling, root.next_object, root.next_run) = (5, 6, 7);
        root.loss = LossMarks { all: LogId(64), unsaid: LogId(128), buffered: LogId(200) };
        root.directory.push(DirectoryObject { id: ObjectId(1), records: 2, bytes: 3 });
        root
    }

    #[test]
    fn the_bytes_are_pinned() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "038020ac02ad02050607408001c801090001010203");
        assert_eq!(Root::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn a_root_of_version_1_has_one_mark_and_one_of_version_2_no_term() {
        let bytes = [0x01, 0x80, 0x20, 0xac, 0x02, 0xad, 0x02, 5, 6, 7, 0x40, 0, 1, 1, 2, 3];
        let loss = LossMarks { all: LogId(64), ..LossMarks::default() };
        assert_eq!(Root::decode(&bytes), Ok(Root { loss, journal_term: 0, ..sample() }));
        let bytes = [0x02, 0x80, 0x20, 0xac, 0x02, 0xad, 0x02, 5, 6, 7, 0x40, 0x80, 1, 0xc8, 1, 0, 1, 1, 2, 3];
        assert_eq!(Root::decode(&bytes), Ok(Root { journal_term: 0, ..sample() }));
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
