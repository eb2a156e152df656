//! A Postgres log: framing whole and in pieces, records, images, effects.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_lakebase_wal::fuzz_wal(data));
