//! `lastwords_fuzz::targets::kernel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::kernel(data));
