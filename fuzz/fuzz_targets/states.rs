//! The attachments of engines to logs, and the notes that change them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thalweg_streams::fuzz_state(data);
    thalweg_shapes::fuzz_log_state(data);
});
