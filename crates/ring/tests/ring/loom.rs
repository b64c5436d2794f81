//! Tests the ring under the C11 memory model, in every execution with up to three preemptions (two
//! in CI). `cargo xtask test --step loom` runs it.

use crate::loom_models::{exclusive, fast, lockless, swap};
use lastwords_ring::model::Point::{
    Announced, Begun, Closed, Closing, Committed, Copied, Locked, Published, Reserved, Step,
    Switched, Written,
};

macro_rules! models {
    ($($module:ident: $($name:ident $(($($argument:expr),*))?),* ;)*) => {
        $($(
            #[test]
            fn $name() {
                models!(@run $module, $name $(($($argument),*))?);
            }
        )*)*
    };
    (@run $module:ident, $name:ident) => { $module::$name() };
    (@run $module:ident, $name:ident ($($argument:expr),*)) => { $($module::$name($argument);)* };
}

models! {
    lockless: two_recorders, recorder_and_switch, two_switches, late_header, wrap_onto_the_living, pass_over_the_living,
        death_at(Announced, Reserved, Written, Copied, Committed),
        death_in_switch_at(Announced, Switched, Begun, Closing, Closed, Committed, Reserved), wrap_onto_the_dead, two_reclaimers,
        nested_at(Announced, Reserved, Written, Copied, Committed), discard_and_consumer, settled_reader, settled_among_two,
        settled_over_the_dead, settled_behind_the_living, live_reader, table_full, two_claim_the_dead;
    exclusive: locked_two_recorders, locked_usurped_at((Locked, 0), (Step, 0), (Step, 1), (Step, 2), (Published, 0)), locked_death_at((Locked, 0), (Step, 0), (Step, 1), (Step, 2), (Published, 0)),
        owner_lock(false, true), sections_of_two_threads, section_interrupted_at(1, 3, 5, 7, 9, 11),
        section_death_at(0, 1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 14, 16), section_migrates_at(0, 1, 2, 3, 4), sections_that_never_end;
    fast: fast_of_two_threads(false, true), fast_interrupted_at(0, 1, 2, 3, 4, 5), fast_death_at(0, 1, 2, 3, 4, 5),
        fast_migrates_at(0, 1, 2, 3, 4), stale_lane, fast_beside_a_swap, fast_beside_two_swaps, lane_of_another_channel, fast_that_never_ends;
    swap: swap_lockless, swap_locked, swap_sections, two_swaps, spare_in_use;
}
