//! Puts mistakes into the ring on purpose. The model of the property that a mistake breaks must
//! fail. `cargo xtask test --step loom` runs it.

use std::panic::{catch_unwind, set_hook};
use std::sync::Once;

use crate::loom_models::{exclusive, fast, lockless, swap};
use lastwords_ring::model::Fault::{self, *};
use lastwords_ring::model::Point::{Announced, Reserved, Step, Switched};
use lastwords_ring::model::seed;

/// Checks that `model` fails when `fault` is in the ring.
fn finds(fault: Fault, model: impl Fn() + std::panic::UnwindSafe) {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| set_hook(Box::new(|_| ())));
    seed(fault);
    let failed = catch_unwind(model).is_err();
    // The failure is reported through the result, because the hook keeps panics quiet.
    if !failed {
        eprintln!("{fault:?} was not found");
    }
    assert!(failed);
}

macro_rules! faults {
    ($($name:ident: $fault:ident, $model:expr;)*) => {
        $(
            #[test]
            fn $name() {
                finds($fault, || $model);
            }
        )*
    };
}

faults! {
    no_confirm: NoConfirm, lockless::death_at(Reserved);
    no_closed_bit: NoClosedBit, swap::swap_lockless();
    stale_half: StaleHalf, swap::two_swaps();
    relaxed_flip: RelaxedFlip, swap::swap_sections();
    spare_in_use: NoWaitForSpare, swap::spare_in_use();
    early_close: EarlyClose, lockless::late_header();
    commit_before_copy: CommitBeforeCopy, lockless::death_at(Reserved);
    late_announcement: LateAnnouncement, lockless::death_at(Announced);
    relaxed_reserve: RelaxedReserve, swap::swap_lockless();
    relaxed_commit: RelaxedCommit, lockless::recorder_and_switch();
    reclaim_living: ReclaimLiving, lockless::wrap_onto_the_living();
    one_lap: OneLap, lockless::pass_over_the_living();
    no_wait: NoWait, lockless::wrap_onto_the_living();
    publish_first: PublishFirst, exclusive::locked_death_at((Step, 0));
    steal_lock: StealLock, exclusive::owner_lock(false);
    rewind: Rewind, exclusive::locked_usurped_at((Step, 2));
    stay_beside: StayBeside, exclusive::locked_usurped_at((Step, 0));
    no_abort: NoAbort, exclusive::sections_of_two_threads();
    fast_no_abort: NoAbort, fast::fast_of_two_threads(true);
    other_cpu: OtherCpu, fast::stale_lane();
    other_half: OtherHalf, fast::fast_beside_a_swap();
    other_owner: OtherOwner, fast::lane_of_another_channel();
    forget_aborted: ForgetAborted, fast::fast_beside_a_swap();
    stale_start: StaleStart, lockless::two_claim_the_dead();
    unsettled: Unsettled, lockless::settled_among_two();
    relaxed_begin: RelaxedBegin, lockless::settled_reader();
    death_in_switch: NoConfirm, lockless::death_in_switch_at(Switched);
}
