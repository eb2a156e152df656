//! Values of one or more columns, as subqueries select them and rows ask for them.

use crate::types::value::{Value, compare, hash};
use std::hash::{Hash, Hasher};

/// One value for each column. Keys of equal values (in Postgres's sense) have equal bytes, and no others.
#[derive(Debug, Clone)]
pub struct Key {
    bytes: Box<[u8]>,
    values: Box<[Value<'static>]>,
}

impl Key {
    pub(crate) fn new(values: impl Iterator<Item = Value<'static>>) -> Self {
        let values: Box<[Value<'static>]> = values.collect();
        let mut bytes = Bytes(Vec::new());
        for value in &values {
            bytes.0.push(u8::from(!value.is_null()));
            if !value.is_null() {
                hash(value, &mut bytes);
            }
        }
        Self { bytes: bytes.0.into(), values }
    }

    /// The encoded key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether one of the values is null.
    pub fn has_null(&self) -> bool {
        self.values.iter().any(Value::is_null)
    }

    /// Number of values in the key.
    pub fn width(&self) -> usize {
        self.values.len()
    }

    /// Whether all values are equal, nulls being equal to everything.
    pub fn may_equal(&self, other: &Self) -> bool {
        self.values.iter().zip(&other.values).all(|(a, b)| a.is_null() || b.is_null() || compare(a, b).is_eq())
    }

    pub(crate) fn values(&self) -> &[Value<'static>] {
        &self.values
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

/// Input of a hasher, in one byte order on all machines: equal values give equal bytes, different values different
/// ones.
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_u16(&mut self, n: u16) {
        self.write(&n.to_le_bytes());
    }

    fn write_u32(&mut self, n: u32) {
        self.write(&n.to_le_bytes());
    }

    fn write_u64(&mut self, n: u64) {
        self.write(&n.to_le_bytes());
    }

    fn write_u128(&mut self, n: u128) {
        self.write(&n.to_le_bytes());
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
