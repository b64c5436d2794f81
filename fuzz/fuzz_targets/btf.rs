//! `lastwords_fuzz::kernels::btf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::btf(data));
