//! The index file of a cache folder: its entries.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_storage::fuzz_cache_index(data));
