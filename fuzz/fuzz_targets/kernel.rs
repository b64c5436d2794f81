//! `lastwords_fuzz::kernels::kernel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::kernel(data));
