//! `lastwords_fuzz::kernels::ring_page`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastwords_fuzz::kernels::ring_page(data));
