//! The write-ahead log in a cluster's folder.

use std::path::Path;

/// Bytes of a segment, as `initdb` has it by default.
pub const SEGMENT_BYTES: u32 = 16 << 20;

/// The log in a data folder: the position of its first byte, and its segments one after the other. Segments behind the last
/// one that is written are recycled ones, with the log of before.
pub fn log_of(data: &Path) -> (u64, Vec<u8>) {
    let folder = data.join("pg_wal");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("pg_wal")
        .map(|entry| entry.expect("an entry of pg_wal").file_name().into_string().expect("a name"))
        .filter(|name| name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect();
    names.sort();
    let number = |name: &str| {
        let [high, low] = [8..16, 16..24].map(|range| u64::from_str_radix(&name[range], 16).expect("a number"));
        high * (0x1_0000_0000 / u64::from(SEGMENT_BYTES)) + low
    };
    let first = number(names.first().expect("a segment"));
    let names = names.iter().enumerate().take_while(|(at, name)| number(name) == first + *at as u64);
    let bytes = names.flat_map(|(_, name)| std::fs::read(folder.join(name)).expect("a segment")).collect();
    (first * u64::from(SEGMENT_BYTES), bytes)
}
