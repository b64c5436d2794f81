//! The tests of the crate `lastwords`.

/// Makes the test that calls it run in a process of its own: a process records its events in all of
/// its sessions, and forks, signals, hooks and limits are of a process, too. Tests whose names
/// begin with `child_` are what such processes start, and do nothing else. `alone!(in dir)` also
/// makes a temporary folder `dir`.
macro_rules! alone {
    (in $dir:ident) => {
        alone!();
        let $dir = tempfile::tempdir().expect("a folder");
    };
    () => {
        fn here() {}
        if crate::common::ran_alone(::std::any::type_name_of_val(&here)) {
            return;
        }
    };
}

/// Runs a block in a child of the test, which records in the folder `dir`, and returns its end.
macro_rules! ended {
    ($dir:ident, $run:block) => {{
        fn here() {}
        if let Some($dir) = crate::common::child_dir() {
            #[allow(unreachable_code, reason = "most blocks end the process")]
            return $run;
        }
        crate::support::Ended::run(::std::any::type_name_of_val(&here))
    }};
}

mod backends;
mod channels;
mod clock;
mod common;
mod compiled;
mod conditions;
mod consumed;
mod counters;
mod crash;
mod created_channels;
mod creation_faults;
mod endings;
mod environment;
mod event_spans;
mod faults;
mod fields;
mod filters;
mod forbid_unsafe;
mod forks;
mod hidden;
mod hosts;
mod hosts_table;
mod interest;
mod layer;
mod layer_init;
mod layer_threads;
mod layer_values;
mod listener;
mod liveness;
mod many_threads;
mod memory;
mod namespaces;
mod one_call;
mod processes;
mod programs;
mod quiet;
mod registries;
mod rules;
mod seconds;
mod security;
mod sessions;
mod snapshots;
mod spans;
mod std_values;
mod support;
mod surroundings;
mod triggers;
