//! `lastwords_fuzz::kernels::vmcore`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::vmcore(data));
