#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod control_group;
mod ending;
pub mod inside;
mod name;
mod places;
mod snapshot;

pub use control_group::{CONTROL_GROUPS, ControlGroup, oom_kills};
pub use ending::{ENDED_EARLY, Ended, Ending, is_cut, unseen_end};
pub use name::{is_session_folder, is_unique, name_of, unique_of};
pub use places::{PLACES_FILE, Place, parse_places};
pub use snapshot::SnapshotState;
