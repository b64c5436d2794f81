//! `lastwords_fuzz::ctf::metadata`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::ctf::metadata(data));
