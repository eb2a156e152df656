//! A small index that stands beside logs on one unit: counters by name.
//!
//! Its part of a frame adds to one counter. Settling writes all counters into one object, as they stood below the new
//! floor. An addition that is replayed twice, or not at all, makes a wrong sum.

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn, ObjectId};
use thalweg_journal::{AppendError, Class, FrameRef, Journal};
use thalweg_unit::{Index, IndexId, OpenError, Opening, Part, Replay, Section, Unit, frame_head};

pub(crate) const COUNTERS: IndexId = IndexId(200);

pub(crate) type Values = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) floor: Lsn,
    pub(crate) object: Option<(ObjectId, u64)>,
}

impl Section for Root {
    const INDEX: IndexId = COUNTERS;

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some((object, len)) = self.object {
            out.put_varint(object.0);
            out.put_varint(len);
        }
        out
    }

    fn decode(floor: Lsn, body: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(body);
        let object = if d.is_empty() { None } else { Some((ObjectId(d.varint()?), d.varint()?)) };
        d.end()?;
        Ok(Self { floor, object })
    }

    fn floor(&self) -> Lsn {
        self.floor
    }

    fn objects(&self) -> Vec<(ObjectId, u64)> {
        self.object.into_iter().collect()
    }
}

pub(crate) struct Loaded {
    root: Root,
    values: Values,
}

pub(crate) struct Replaying {
    index: Index<Root>,
    floor: Lsn,
    values: Values,
}

pub(crate) struct Counters {
    pub(crate) index: Index<Root>,
    journal: Arc<dyn Journal>,
    /// The lock orders the frames of this index.
    values: Mutex<Values>,
}

impl Counters {
    pub(crate) fn load(unit: &mut Opening) -> Result<Loaded, OpenError> {
        let new = Root { floor: unit.floor(), object: None };
        let root = unit.section::<Root>()?.unwrap_or(new);
        let mut values = Values::new();
        if let Some((object, len)) = root.object {
            let body = unit.storage().read(object, 0..len).wait()?;
            let mut d = Decoder::new(&body);
            while !d.is_empty() {
                let (name, value) = change(&mut d).map_err(OpenError::Root)?;
                values.insert(name, value);
            }
        }
        Ok(Loaded { root, values })
    }

    pub(crate) fn values(&self) -> Values {
        self.values.lock().clone()
    }

    /// Adds to a counter, in a frame of its own; the frame's end.
    pub(crate) fn add(&self, name: &str, n: u64) -> Result<Lsn, AppendError> {
        let mut values = self.values.lock();
        let head = frame_head(COUNTERS);
        let end = self.journal.append(Class::User, &[&head, &part(name, n)])?.end;
        *values.entry(name.to_owned()).or_default() += n;
        Ok(end)
    }

    /// Adds to a counter in a frame that another index commits.
    pub(crate) fn add_beside<E>(
        &self,
        name: &str,
        n: u64,
        commit: impl FnOnce(&[Part<'_>]) -> Result<Lsn, E>,
    ) -> Result<Lsn, E> {
        let mut values: MutexGuard<'_, Values> = self.values.lock();
        let end = commit(&[Part { index: COUNTERS, pieces: &[&part(name, n)] }])?;
        *values.entry(name.to_owned()).or_default() += n;
        Ok(end)
    }

    /// Writes all counters into one object, and lets the journal go below.
    pub(crate) fn settle(&self) -> Result<(), String> {
        let (body, floor) = {
            let values = self.values.lock();
            let body: Vec<u8> = values.iter().flat_map(|(name, value)| part(name, *value)).collect();
            (body, self.journal.end())
        };
        self.journal.wait(floor).map_err(|error| error.to_string())?;
        let unit = self.index.unit();
        let id = unit.new_object();
        let written = unit.storage().create(id).and_then(|mut writer| {
            writer.write(&body)?;
            writer.finish()
        });
        let object = written.map_err(|error| error.to_string())?;
        let put = |root: &mut Root| *root = Root { floor, object: Some((id, object)) };
        let dropped = self.index.edit(vec![id], |root, _| put(root)).map_err(|error| error.to_string())?;
        self.index.release(floor);
        unit.discard(&dropped);
        Ok(())
    }
}

impl Loaded {
    pub(crate) fn replay_on(self, unit: &Arc<Unit>) -> Replaying {
        let Self { root, values } = self;
        Replaying { floor: root.floor, index: Index::new(Arc::clone(unit), root), values }
    }
}

impl Replay for Replaying {
    fn index(&self) -> IndexId {
        COUNTERS
    }

    fn floor(&self) -> Lsn {
        self.floor
    }

    fn replay(&mut self, _: FrameRef, part: &Bytes) -> Result<(), String> {
        let mut d = Decoder::new(part);
        let (name, n) = change(&mut d).map_err(|error| error.to_string())?;
        *self.values.entry(name).or_default() += n;
        d.end().map_err(|error| error.to_string())
    }
}

impl Replaying {
    pub(crate) fn finish(self, journal: Arc<dyn Journal>) -> Counters {
        Counters { index: self.index, journal, values: Mutex::new(self.values) }
    }
}

fn part(name: &str, n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_bytes(name.as_bytes());
    out.put_varint(n);
    out
}

fn change(d: &mut Decoder<'_>) -> Result<(String, u64), DecodeError> {
    Ok((d.str()?.to_owned(), d.varint()?))
}
