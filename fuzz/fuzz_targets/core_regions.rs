//! `lastwords_fuzz::targets::core_regions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::core_regions(data));
