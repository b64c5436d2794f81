//! The program as a person meets it: arguments, exit statuses, what stands on stdout and on stderr; sessions that are
//! recorded, killed and recovered.

mod child;
mod clocks;
mod consume;
mod control;
mod core_helper;
mod cores;
mod crafted;
mod damaged;
mod enabled;
mod errors;
mod filters;
mod follow;
mod golden;
mod inputs;
mod kinds;
mod layouts;
mod live_kernel;
mod lttng;
mod matrix;
mod moments;
mod mount;
mod mount_raw;
mod mutants;
mod outputs;
mod parts;
mod persistent;
mod pipes;
mod record;
mod recovery;
mod stream;
mod support;
mod surface;
mod triggers;
mod two_users;
mod windows;
