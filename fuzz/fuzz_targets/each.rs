//! All fuzz targets: a binary for each, which runs the function of its name in
//! `lastwords_fuzz::targets::ALL`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| lastwords_fuzz::targets::by_name(env!("CARGO_BIN_NAME"))(data)
);
