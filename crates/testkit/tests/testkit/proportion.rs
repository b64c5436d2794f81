//! Memory and time are in proportion to an input's size, whatever its numbers claim. Crafted dumps,
//! cores, streams of LTTng and BTF blobs are read as the program reads them: 256 MiB of memory and
//! 10 seconds are enough for each. With `LASTWORDS_ALL_BITS` there are 20,000 of them.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Bytes, Watchdog};
use crate::crafted::{Parts, Rng, btf, elf, flattened, kdump, lime};
use lastwords_bytes::Budget;
use lastwords_ftrace::memory as ftrace;
use lastwords_image::{Image, unwatched};
use lastwords_kernel::btf::{Btf, Types};
use lastwords_kernel::{Kernel, Sources, find};
use lastwords_lttng::kernel::ModuleTypes;
use lastwords_lttng::{self as lttng, kernel, user};
use lastwords_session as session;

/// Longest that one input may take: time on the CPU, and where other work has the CPUs, time that
/// passes.
const LIMIT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(120);
/// Inputs in CI, and in all.
const IN_CI: u64 = 90;
const IN_ALL: u64 = 20_000;

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    file
}

/// Everything that can be found in memory.
fn walk(image: &Arc<dyn Image>, budget: &Budget) {
    let options = session::Options::default();
    let _ = session::find(image, &options, budget, &unwatched);
    let _ = session::carve(image, &options, budget, &unwatched);
    let _ = user::image(image, budget, &unwatched);
    let _ = user::memory(image, budget, &unwatched);
    let carved = lttng::carve(image, budget, &unwatched).unwrap_or_default();
    let traces: Vec<[u8; 16]> = carved.iter().map(|session| session.uuid).take(8).collect();
    let _ = lttng::texts(image, &traces, budget, &unwatched);
}

fn dump(bytes: &[u8]) {
    let (file, budget) = (file_of(bytes), Arc::new(Budget::default()));
    let Ok(Some(physical)) =
        lastwords_image::vmcore::open_physical(file.path(), &budget, &unwatched)
    else {
        return;
    };
    if let Ok(found) = find::kernel(&physical, &budget, &unwatched) {
        let memory = Arc::new(found.memory);
        let opened =
            Kernel::open(memory.clone(), &found.info, Sources::default(), Arc::clone(&budget));
        if let Ok(kernel) = opened.map(Arc::new) {
            let _ = (ftrace::read(&kernel, Some(&memory)), ftrace::carve(&kernel, &memory));
            let _ = kernel::read(&kernel, &ModuleTypes::Image);
        }
    }
    walk(&physical.image, &budget);
}

fn core(bytes: &[u8]) {
    let (file, budget) = (file_of(bytes), Budget::default());
    if let Ok(opened) = lastwords_image::open(file.path(), &budget, &unwatched) {
        walk(&opened.image, &budget);
    }
}

fn blob(bytes: Vec<u8>) {
    let budget = Budget::for_input(bytes.len() as u64);
    let Ok(btf) = Btf::parse(bytes, None, &budget) else { return };
    let types = Types::new(Arc::new(btf));
    for name in ["outer", "inner_t", "task_struct", "module", "circle"] {
        let Ok(id) = types.id(name) else { continue };
        for path in ["next", "inners[2].level", "mem[1].base", ""] {
            let _ = types
                .member_of(id, path)
                .map(|member| (types.target(member.type_id), types.size(member.type_id)));
        }
        let _ = types.members(id).len();
    }
    let _ = (types.enum_value("HUGE"), types.enumeration("module_state"));
}

/// Makes and reads the input of a number; says which kind it was and its size.
fn one(parts: &Parts, case: u64) -> String {
    let mut rng = Rng::new(case);
    let kind = case % 9;
    let inner = match kind {
        0 | 1 => elf(&mut rng, parts, false),
        2 | 3 => elf(&mut rng, parts, true),
        4 => kdump(&mut rng, parts),
        5 => lime(&mut rng, parts),
        6 => btf(&mut rng),
        7 => {
            let inner = if rng.below(2) == 0 {
                elf(&mut rng, parts, false)
            } else {
                kdump(&mut rng, parts)
            };
            flattened(&mut rng, &inner)
        }
        _ => {
            let pages = [1, 16, 256, 1024][rng.below(4)];
            parts.memory(&mut rng, pages, 0)
        }
    };
    let size = inner.len();
    match kind {
        2 | 3 => core(&inner),
        6 => blob(inner),
        8 => {
            let budget = Budget::for_input(size as u64);
            let image: Arc<dyn Image> = Arc::new(Bytes::new(inner.into(), size, None));
            walk(&image, &budget);
        }
        _ => dump(&inner),
    }
    format!("case {case}: kind {kind}, {size} bytes")
}

/// How long this thread has run.
fn on_cpu() -> Duration {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("the time of a thread");
    let ran = stat.split_ascii_whitespace().next().and_then(|ran| ran.parse().ok());
    Duration::from_nanos(ran.expect("nanoseconds"))
}

#[test]
fn crafted_inputs_cost_no_more_than_their_size() {
    let parts = Parts::new();
    let only = std::env::var("LASTWORDS_CASE").ok().and_then(|case| case.parse::<u64>().ok());
    let count = if std::env::var_os("LASTWORDS_ALL_BITS").is_some() { IN_ALL } else { IN_CI };
    let cases = only.map_or(0..count, |case| case..case + 1);
    let watchdog = Watchdog::new("crafted inputs", PATIENCE);
    let mut slowest = (Duration::ZERO, String::new());
    for case in cases {
        watchdog.case(case);
        let begun = on_cpu();
        let what = one(&parts, case);
        let took = on_cpu() - begun;
        assert!(took < LIMIT, "{what}: {took:?}");
        slowest = slowest.max((took, what));
    }
    println!("the slowest took {:?}: {}", slowest.0, slowest.1);
}
