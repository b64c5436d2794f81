//! The process of a session's events is told only where no other process can have recorded them.

use crate::support::{recover_arena, region};
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::session as layout;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::source::Source as _;

/// The id of the process that created the sample's session, and of another.
const CREATOR: u32 = 4242;
const OTHER: u32 = 4243;

fn process(image: &Image) -> Option<EnvValue> {
    recover_arena(image).sessions[0].schema().env.get("vpid").cloned()
}

#[test]
fn a_session_of_one_process_has_its_id() {
    let image = samples::small(Order::Little).image();
    assert_eq!(process(&image), Some(EnvValue::Integer(CREATOR.into())));
}

#[test]
fn a_session_of_all_processes_of_a_user_has_none() {
    let mut image = samples::small(Order::Little).image();
    let at = layout::INFO_AT + layout::SCOPE_AT;
    region(&mut image, "session")[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
    assert_eq!(process(&image), None);
}

#[test]
fn a_session_that_another_process_has_joined_has_none() {
    let mut image = samples::small(Order::Little).image();
    let bytes = region(&mut image, "session");
    // Where the table of processes is.
    let at = layout::INFO_AT + layout::CPUS_AT + 4 * 4;
    let table = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(bytes[table..table + 4], CREATOR.to_le_bytes());
    let second = table + layout::PROCESS_LEN;
    bytes[second..second + 4].copy_from_slice(&OTHER.to_le_bytes());
    assert_eq!(process(&image), None);
}
