//! `lastwords_fuzz::ctf::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::ctf::stream(data));
