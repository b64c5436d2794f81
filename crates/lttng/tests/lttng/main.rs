//! The tests of the crate `lttng`.

mod carved;
mod losses;
mod user;

use lastwords_bytes::Budget;
use lastwords_image::{Image, unwatched};
use std::sync::Arc;

/// Bytes from address 0 on.
fn image(bytes: &[u8]) -> Arc<dyn Image> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    lastwords_image::open(file.path(), &Budget::default(), &unwatched).expect("readable").image
}
