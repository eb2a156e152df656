//! Messages of Postgres's pgoutput: no panic, and each decoded message survives a round trip.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_pg::pgoutput::fuzz_pgoutput(data));
