//! The tests of the crate `ring`. Under `--cfg loom` they are the models of the ring, and else all
//! others.

#[cfg(not(loom))]
mod attach;
#[cfg(not(loom))]
mod common;
#[cfg(not(loom))]
mod concurrent;
#[cfg(not(loom))]
mod differential;
#[cfg(not(loom))]
mod end_of_thread;
#[cfg(not(loom))]
mod kernel;
#[cfg(loom)]
mod loom;
#[cfg(loom)]
mod loom_faults;
#[cfg(loom)]
mod loom_models;
#[cfg(not(loom))]
mod own_area;
#[cfg(not(loom))]
mod passed_over;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod small_rings;
#[cfg(not(loom))]
mod swap;
