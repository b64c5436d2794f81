//! `lastwords_fuzz::targets::zstd_core`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::targets::zstd_core(data));
