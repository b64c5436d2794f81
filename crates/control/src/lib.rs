#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod consume;
pub mod dead;
pub mod follow;
pub mod namespaces;
pub mod rings;
mod sessions;
pub mod stream_out;

pub use lastwords::internals::processes::can_be_guarded;
pub use sessions::{
    ChannelSummary, Details, Evidence, Handle, Life, ProcessSummary, Regions, State, Summary,
    destroy, list,
};

/// The folders of sessions.
pub mod dirs {
    pub use lastwords::internals::dirs::{base_path, candidates, make_base, taken_by_another};
}
