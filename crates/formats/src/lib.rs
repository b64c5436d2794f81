//! Writers: CTF 1.8 and CTF 2 folders, text, JSON lines; ftrace's text and trace.dat files, and the reader of the latter;
//! and the evidence, as text and as data.
//!
//! Each takes [`lastwords_trace::source::Source`]s and returns [`Totals`]. CTF copies packets without decoding them where
//! their verdict allows; text and JSON decode and merge the streams by time.
#![forbid(unsafe_code)]

pub mod events;
pub mod evidence;
mod fields;
pub mod ftrace;
pub mod json;
mod once;
pub mod perfetto;
pub mod select;
pub mod text;

pub use lastwords_ctf::{Error, Result, Totals, create_file, create_folder};
