//! `lastwords_fuzz::targets::btf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::btf(data));
