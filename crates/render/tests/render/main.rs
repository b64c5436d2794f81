//! The tests of the crate `render`.

mod babeltrace;
mod ctf2_selectors;
mod ctf2_types;
mod ctf_hostile;
mod ctf_joined;
mod ctf_merge;
mod ctf_packet_times;
mod ctf_parts;
mod ctf_read;
mod ctf_versions;
mod duplicates;
mod last;
mod spans;
mod support;
mod writers;
