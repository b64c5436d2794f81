//! What writers of text share: pages of text, numbers without the overhead of `core::fmt`, times in
//! seconds.

pub mod number;
pub mod page;
mod seconds;

pub use seconds::{FRACTION, put_seconds, seconds};
