#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod consume;
mod error;
mod follow;
mod inputs;
mod named;
mod same_name;
mod snapshot;
mod state;
mod tail;

pub use consume::{Consumed, consume, consume_session};
pub use error::{Error, Result};
pub use follow::{Pace, follow};
pub use inputs::{inputs, instance_folder, open};
pub use lastwords_open::Options;
pub use named::{did_you_mean, folders_of};
pub use snapshot::read;
pub use state::{is_live, is_live_summary, sessions_dir, state, unknown_end};
