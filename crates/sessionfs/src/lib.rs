//! Live sessions as a file system in the shape of the kernel's tracefs, for `lastwords mount`.
//!
//! [`Tree`] knows which files there are, and what reading and writing one does. It does not know
//! FUSE, so that its tests need no mount. [`mount()`] serves a tree at a folder through FUSE.
//! docs/MOUNT.md describes each file.
//!
//! Nothing here decodes or prints events, or changes a session by itself: reading is
//! [`lastwords_open`], the text is [`lastwords_render`], control is [`lastwords_control`].
//!
//! The crate has no features.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod buffer;
mod catalog;
mod control;
mod errno;
mod error_log;
mod expression;
mod file;
mod filter;
mod filters;
mod format;
mod fuse;
mod guard;
mod kernel_line;
mod kinds;
mod mount;
mod mutex;
mod names;
mod number;
mod path;
mod patterns;
mod pipe;
mod pipe_reader;
mod raw;
mod readme;
mod recorder;
mod restriction;
mod sessions;
mod text;
mod tree;
mod trigger;
mod view;

pub use guard::{guard, unmount};
pub use mount::{Mounted, mount};
pub use recorder::{Programs, record};
pub use rustix::io::Errno;
pub use sessions::Sessions;
pub use tree::{Access, Entry, OpenFile, Tree};
