//! The manifest: its frame, and the root in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thalweg_manifest::fuzz_manifest(data);
    thalweg_log::fuzz_root(data);
});
