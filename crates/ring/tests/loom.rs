//! The ring under the C11 memory model, every execution up to three preemptions. Run by `cargo xtask loom`.
#![cfg(loom)]

mod loom_models;

use loom_models::{lockless, swap};

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
        death_at(0, 1, 2, 3, 4), death_in_switch_at(0, 1, 2, 3, 4, 5, 7), wrap_onto_the_dead, two_reclaimers,
        nested_at(0, 1, 2, 3, 4), discard_and_consumer, live_reader, table_full, two_claim_the_dead;
    swap: swap_lockless, swap_locked, swap_sections, two_swaps, spare_in_use;
}
