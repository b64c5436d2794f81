//! A whole kernel, small and made of bytes.

use crate::support::toy::*;
use lastwords_bytes::{Budget, Limits};
use lastwords_kernel::{Error, Kernel, Mask, Sources, Time};
use lastwords_trace::symbols::Symbols;
use proptest::prelude::*;
use std::sync::Arc;

fn open(toy: Toy) -> Kernel {
    Kernel::open(Arc::new(toy.memory), &toy.info, Sources::default(), Arc::default()).unwrap()
}

#[test]
fn it_says_what_it_is() {
    let kernel = open(Toy::default());
    assert!(kernel.missing.is_empty(), "{:?}", kernel.missing);
    let uname = kernel.uname().unwrap();
    assert_eq!([uname.release.as_str(), &uname.machine], ["6.99", "x86_64"]);
    assert_eq!(kernel.cpus(Mask::Possible), [0, 1]);
    assert_eq!(kernel.cpus(Mask::Online), [1]);
    assert_eq!(kernel.per_cpu(DATA + 0x10, 1).unwrap(), PER_CPU[1] + 0x10);
    let monotonic = 987_000_000_500;
    assert_eq!(
        kernel.time().unwrap(),
        Time { wall: 1_000_000_000_500, uptime: 990_000_000_500, monotonic }
    );
    assert_eq!(kernel.sched_clock(), Some(monotonic + 5_778_537_823 - 5_006_222_284));
}

/// VMCOREINFO of kernels before Linux 6.0 has no addresses of the symbol table.
#[test]
fn symbols_are_found_by_their_contents() {
    let mut toy = Toy::default();
    toy.be_of_5_10(1000);
    let kernel = open(toy);
    assert!(kernel.missing.is_empty(), "{:?}", kernel.missing);
    assert_eq!(kernel.uname().unwrap().node, "toy");
    assert_eq!(
        (kernel.symbol("added_999"), kernel.symbol("init_task")),
        (Ok(added(999)), Ok(INIT_TASK))
    );
    assert_eq!(kernel.tasks().rows.len(), 4);
}

/// A table that is damaged is not found, or lacks names and says so. No symbol gets the address or
/// the name of another.
#[test]
fn damage_to_symbols_that_are_found_is_told() {
    let mut toy = Toy::default();
    let tables = toy.be_of_5_10(1000);
    let reads = |toy: &Toy, what: &str| {
        let opened = Kernel::open(
            Arc::new(toy.memory.clone()),
            &toy.info,
            Sources::default(),
            Arc::default(),
        );
        let kernel = match opened {
            Ok(kernel) => kernel,
            Err(error) => return assert!(!error.to_string().is_empty(), "{what}"),
        };
        assert!(!kernel.missing.is_empty(), "{what}: nothing is missing");
        for n in 0..1000 {
            let found = kernel.symbol(&format!("added_{n}"));
            assert!(found.is_err() || found == Ok(added(n)), "{what}: added_{n} is at {found:x?}");
        }
    };
    let places = [
        ("the number of symbols", tables.num_syms),
        ("a name's length", tables.names),
        ("a marker", tables.token_table - 8),
        ("the first marker", tables.token_table - 16),
        ("an expansion", tables.token_table + 1),
        ("the place of an expansion", tables.token_index + 2),
        ("the base", tables.relative_base.unwrap()),
    ];
    for (what, place) in places {
        let mut damaged = [0];
        lastwords_kernel::memory::Memory::read(&toy.memory, place, &mut damaged).unwrap();
        toy.memory.put(place, &[damaged[0] ^ 0x11]);
        reads(&toy, what);
        toy.memory.put(place, &damaged);
    }
    // A page that is missing, or reads as zero.
    let whole = toy.memory.0.remove(&TABLES).unwrap();
    for page in 0..(tables.token_index + 512 - TABLES).div_ceil(4096) as usize {
        for is_zero in [false, true] {
            let (begin, end) = (page * 4096, (page + 1) * 4096);
            toy.memory.add(TABLES, whole[..begin].to_vec());
            toy.memory.add(TABLES + begin as u64, if is_zero { vec![0; 4096] } else { Vec::new() });
            toy.memory.add(TABLES + end as u64, whole[end..].to_vec());
            reads(&toy, &format!("page {page}, {is_zero}"));
        }
    }
    // No table at all, and no begin of the code.
    toy.memory.0.retain(|at, _| !(TABLES..BTF).contains(at));
    let error = |toy: &Toy| {
        let opened = Kernel::open(
            Arc::new(toy.memory.clone()),
            &toy.info,
            Sources::default(),
            Arc::default(),
        );
        opened.err().unwrap().to_string()
    };
    assert!(error(&toy).contains("no symbol table that is whole"), "{}", error(&toy));
    toy.info = lastwords_kernel::vmcoreinfo::VmcoreInfo::parse(b"OSRELEASE=5.10.0\n");
    assert!(error(&toy).contains("_stext"), "{}", error(&toy));
}

#[test]
fn tasks_are_found_with_their_threads() {
    let found = open(Toy::default()).tasks();
    let rows: Vec<_> =
        found.rows.iter().map(|task| (task.pid, task.tgid, task.comm.as_str())).collect();
    assert_eq!(rows, [(0, 0, "swapper/0"), (1, 1, "init"), (7, 7, "shell"), (8, 7, "worker")]);
    assert!(found.missing.is_empty());
}

#[test]
fn a_list_that_comes_back_to_its_middle_ends() {
    let mut toy = Toy::default();
    // The second task's next is itself.
    toy.memory.put_u64(TASKS + 0x100 + 24, TASKS + 0x100 + 24);
    let found = open(toy).tasks();
    assert!(found.rows.len() >= 4 && found.rows.len() < 10, "{:?}", found.rows);
    assert!(matches!(found.missing[..], [Error::Loop { .. }]), "{:?}", found.missing);
}

/// A task whose links are missing costs no other one, and a page that reads as zero is no task.
#[test]
fn tasks_after_a_hole_are_found_from_the_end() {
    let mut toy = Toy::default();
    toy.memory.put_u64(TASKS + 24, 0);
    toy.memory.put_u64(TASKS, 0);
    let found = open(toy).tasks();
    let pids: Vec<u32> = found.rows.iter().map(|task| task.pid).collect();
    assert_eq!(pids, [0, 7, 8]);
    assert_eq!(found.missing.len(), 2, "{:?}", found.missing);
}

#[test]
fn names_that_a_later_task_overwrote_are_not_told() {
    let kernel = open(Toy::default());
    assert_eq!(kernel.saved_cmdlines().rows, [(1, "init".into()), (7, "shell".into())]);
    assert_eq!(kernel.saved_tgids().unwrap(), [(8, 7)]);
}

/// The kernel sets the pointer to the names at boot. Zero is of a page that reads as zero: the
/// names are not known.
#[test]
fn names_of_tasks_behind_a_pointer_that_reads_as_zero_are_not_known() {
    let mut toy = Toy::default();
    toy.memory.put_u64(SAVED, 0);
    let error = open(toy).saved_cmdlines().missing.remove(0).to_string();
    assert!(error.contains("savedcmd"), "{error}");
}

#[test]
fn a_modules_symbols_follow_the_kernels() {
    let kernel = open(Toy::default());
    let module = &kernel.modules[0];
    assert_eq!((module.name.as_str(), module.base, module.size), ("toy_module", MODULE, 0x3000));
    assert_eq!((module.taints.as_str(), module.references), ("O", 0));
    let at = kernel.symbols.at(MODULE + 0x12).unwrap();
    assert_eq!((at.name.as_str(), at.offset, at.size), ("toy_one", 2, 0x40));
    assert_eq!(at.module.as_deref(), Some("toy_module"));
    assert_eq!(kernel.symbols.at(MODULE + 0x60).unwrap().size, 0xfb0);
    // Data ends with the next data, and the last with its region. What is in front of all data has
    // no name.
    let size = |at| kernel.symbols.at(at).map(|symbol| (symbol.name, symbol.size));
    assert_eq!(size(MODULE + 0x1810), Some(("toy_ops".into(), 0x40)));
    assert_eq!(size(MODULE + 0x1900), Some(("toy_last".into(), 0x17c0)));
    assert_eq!(size(MODULE + 0x1010), None);
    assert_eq!(kernel.symbols.at(TEXT + 0x101).unwrap().size, 0x80);
    let mut names = Vec::new();
    kernel.symbols.each(&mut |row| names.push(row.name.to_string()));
    assert_eq!(names[names.len() - 5..], ["toy_one", "$x", "toy_two", "toy_ops", "toy_last"]);
    assert_eq!(kernel.symbols.find_in("toy_module", "toy_two"), Some(MODULE + 0x50));
}

#[test]
fn the_log_reads_over_its_rings_ends() {
    let mut toy = Toy::default();
    let text = |n: u64| {
        if n == 14 { String::new() } else { format!("record {n} {}", "x".repeat(n as usize)) }
    };
    for n in 0..20 {
        toy.print(n * 1_000_000_007, &text(n));
    }
    toy.print(21_000_000_000, "BUG: kernel NULL pointer dereference\nsecond line");
    toy.print(22_000_001_000, "Kernel panic - not syncing: sysrq");
    let kernel = open(toy);
    let log = kernel.log();
    // The oldest texts have been overwritten.
    let rows: Vec<_> = log.rows.iter().map(|record| record.sequence).collect();
    assert_eq!(rows, [14, 17, 18, 19, 20, 21]);
    for record in log.rows.iter().filter(|record| record.sequence < 20) {
        assert_eq!((record.text.clone(), record.level), (text(record.sequence), 6));
    }
    for record in &log.rows {
        let [subsystem, device] = device(record.sequence);
        assert_eq!((&record.subsystem, &record.device), (&subsystem, &device));
    }
    let lines = "[   21.000000] BUG: kernel NULL pointer dereference\n[   21.000000] second line";
    assert_eq!(log.rows[4].to_string(), lines);
    let crash = kernel.crash(&log.rows);
    assert_eq!(crash.panic.as_deref(), Some("sysrq"));
    assert_eq!(crash.oops.as_deref(), Some("BUG: kernel NULL pointer dereference"));
    assert_eq!((crash.time, crash.cpu), (Some(22_000_001_000), Some(1)));
}

#[test]
fn a_system_map_is_moved_to_where_the_kernel_ran() {
    let map = "0000000000001000 A cpu_info\nffffffff80000000 T _stext\nffffffff80000010 t one\n\
               ffffffff80000030 B _end\nffffffffc0000000 t other\t[module]\n";
    let mut sources = Sources::default();
    sources.system_map(map, &Toy::default().info).unwrap();
    let symbols = sources.symbols.unwrap();
    assert_eq!((symbols.find("one"), symbols.find("cpu_info")), (Some(TEXT + 0x10), Some(0x1000)));
    assert_eq!((symbols.len(), symbols.find("_end")), (4, Some(TEXT + 0x30)));
    assert!(Sources::default().system_map("nothing\n", &Toy::default().info).is_err());
}

/// Asks for all that a kernel can tell.
fn ask(kernel: &Kernel) {
    let _ = (kernel.uname(), kernel.time(), kernel.saved_cmdlines(), kernel.saved_tgids());
    let _ = (kernel.cpus(Mask::Possible), kernel.per_cpu(DATA, 77));
    let log = kernel.log();
    let _ = (kernel.crash(&log.rows), kernel.tasks());
    let mut count = 0usize;
    kernel.symbols.each(&mut |_| count += 1);
    let _ = (
        kernel.symbols.at(MODULE + 0x20),
        kernel.symbols.at(TEXT + 0x120),
        kernel.symbols.find("toy_two"),
    );
    let _ = kernel.module_types("toy_module");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn no_memory_makes_it_panic_or_hang(
        changes in prop::collection::vec((0usize..6, any::<prop::sample::Index>(), 0u8..6, any::<u64>()), 1..16),
    ) {
        let mut toy = Toy::default();
        for n in 0..12 {
            toy.print(n, "some text");
        }
        // Where numbers lie that lead elsewhere.
        let parts = [(BTF, 4096), (DATA, 0x7000), (HEAP, 0x7000), (TABLES, 4096), (MODULE + 0x1000, 0x800), (SLOTS + 0x2_0000, 64)];
        for (part, at, kind, value) in changes {
            let (start, len) = parts[part];
            let at = start + at.index(len) as u64 / 8 * 8;
            let value = [0, u64::MAX, value & 0xff, value, 1 << 40, at][usize::from(kind)];
            if value > 0xff || kind < 2 { toy.memory.put_u64(at, value) } else { toy.memory.put(at, &[value as u8]) }
        }
        let limits = Limits { bytes: 1 << 24, steps: 1 << 16, ..Limits::default() };
        let opened = Kernel::open(Arc::new(toy.memory), &toy.info, Sources::default(), Arc::new(Budget::new(limits)));
        if let Ok(kernel) = opened {
            ask(&kernel);
        }
    }
}
