//! A small kernel: types, symbols, two CPUs, three tasks, one module, a log, names that ftrace
//! kept.

use super::Regions;
use super::kallsyms::{Encoding, Order, write, write_in};
use lastwords_kernel::kallsyms::Tables;
use lastwords_kernel::vmcoreinfo::VmcoreInfo;
use lastwords_testkit::btf::Writer;

pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;
pub(crate) const DATA: u64 = TEXT + 0x10_0000;
pub(crate) const TABLES: u64 = TEXT + 0x20_0000;
pub(crate) const BTF: u64 = TEXT + 0x30_0000;
pub(crate) const END: u64 = TEXT + 0x40_0000;
pub(crate) const HEAP: u64 = 0xffff_8880_0000_0000;
pub(crate) const MODULE: u64 = 0xffff_ffff_c000_0000;
pub(crate) const PER_CPU: [u64; 2] = [HEAP + 0x8000, HEAP + 0x9000];

/// Where variables lie.
pub(crate) const UTS: u64 = DATA;
pub(crate) const INIT_TASK: u64 = DATA + 0x1000;
pub(crate) const SIGNAL: u64 = DATA + 0x1800;
pub(crate) const MODULES: u64 = DATA + 0x2000;
pub(crate) const PRB: u64 = DATA + 0x3000;
pub(crate) const LOG: u64 = DATA + 0x3100;
pub(crate) const SAVED: u64 = DATA + 0x4000;
pub(crate) const WORDS: u64 = DATA + 0x5000;
pub(crate) const KEEPER: u64 = DATA + 0x6000;
pub(crate) const TASKS: u64 = HEAP;
const TASK: u64 = 0x100;
/// Where the descriptors, the infos and the texts of the log lie.
pub(crate) const DESCRIPTORS: u64 = HEAP + 0x2000;
pub(crate) const INFOS: u64 = HEAP + 0x3000;
pub(crate) const LOG_TEXT: u64 = HEAP + 0x4000;
/// Slots of ftrace's names.
pub(crate) const SLOTS: u64 = HEAP + 0x20_0000;

/// A kernel in memory.
pub(crate) struct Toy {
    pub(crate) memory: Regions,
    pub(crate) info: VmcoreInfo,
    btf_len: u64,
    log_at: u64,
    records: u64,
}

fn symbols(btf_len: u64) -> [(u64, char, &'static str); 21] {
    SYMBOLS.map(|row| if row.2 == "__stop_BTF" { (BTF + btf_len, row.1, row.2) } else { row })
}

/// Address of a function that [`Toy::be_of_5_10`] adds.
pub(crate) fn added(n: usize) -> u64 {
    TEXT + 0x1000 + n as u64 * 16
}

fn types() -> Writer {
    let mut w = Writer::default();
    let int = w.int("int", 4, true);
    let long = w.int("long unsigned int", 8, false);
    let char = w.int("char", 1, false);
    let short = w.int("u16", 2, false);
    let atomic = w.structure("atomic_long_t", 8, &[("counter", long, 0)]);
    let list = w.structure("list_head", 16, &[("next", long, 0), ("prev", long, 8)]);
    let name = w.array(char, 65);
    let names = ["sysname", "nodename", "release", "version", "machine"];
    let members: Vec<_> =
        names.iter().enumerate().map(|(n, field)| (*field, name, n as u32 * 65)).collect();
    let uts = w.structure("new_utsname", 390, &members);
    w.structure("uts_namespace", 400, &[("name", uts, 0)]);
    let words = w.array(long, 16);
    w.structure("cpumask", 128, &[("bits", words, 0)]);
    let comm = w.array(char, 16);
    let signal = w.structure("signal_struct", 16, &[("thread_head", list, 0)]);
    let signal = w.pointer(signal);
    let task = [("pid", int, 0), ("tgid", int, 4), ("comm", comm, 8), ("tasks", list, 24)];
    w.structure(
        "task_struct",
        TASK as u32,
        &[&task[..], &[("signal", signal, 40), ("thread_node", list, 48)]].concat(),
    );
    log_types(&mut w, [int, long, char, short, atomic]);
    module_types(&mut w, [int, long, char, list]);
    let slots = w.array(int, 0x8001);
    let pids = w.pointer(int);
    let saved = [
        ("map_pid_to_cmdline", slots, 0),
        ("map_cmdline_to_pid", pids, 0x2_0008),
        ("cmdline_num", int, 0x2_0010),
    ];
    let rest = w.array(char, 0);
    w.structure(
        "saved_cmdlines_buffer",
        0x2_0018,
        &[&saved[..], &[("saved_cmdlines", rest, 0x2_0018)]].concat(),
    );
    let span = w.structure("timespec64", 16, &[("tv_sec", long, 0), ("tv_nsec", long, 8)]);
    let clock = w.structure("tk_read_base", 16, &[("xtime_nsec", long, 0), ("shift", int, 8)]);
    let keeper = [("tkr_mono", clock, 0), ("xtime_sec", long, 16), ("wall_to_monotonic", span, 24)];
    let keeper =
        w.structure("timekeeper", 64, &[&keeper[..], &[("monotonic_to_boot", span, 40)]].concat());
    w.structure("", 72, &[("seq", int, 0), ("timekeeper", keeper, 8)]);
    w
}

fn log_types(w: &mut Writer, [int, long, char, short, atomic]: [u32; 5]) {
    let place = w.structure("prb_data_blk_lpos", 16, &[("begin", long, 0), ("next", long, 8)]);
    let descriptor =
        w.structure("prb_desc", 24, &[("state_var", atomic, 0), ("text_blk_lpos", place, 8)]);
    let (level, flags) = (3 << 24 | 165, 5 << 24 | 160);
    let info = [
        ("seq", long, 0),
        ("ts_nsec", long, 64),
        ("text_len", short, 128),
        ("facility", char, 144),
    ];
    let info = w.composite(
        4,
        "printk_info",
        24,
        &[&info[..], &[("flags", char, flags), ("level", char, level)]].concat(),
    );
    let (descriptors, infos) = (w.pointer(descriptor), w.pointer(info));
    let ring = [("count_bits", int, 0), ("descs", descriptors, 8), ("infos", infos, 16)];
    let ring = w.structure(
        "prb_desc_ring",
        40,
        &[&ring[..], &[("head_id", atomic, 24), ("tail_id", atomic, 32)]].concat(),
    );
    let text = w.pointer(char);
    let data = w.structure("prb_data_ring", 16, &[("size_bits", int, 0), ("data", text, 8)]);
    w.structure("printk_ringbuffer", 56, &[("desc_ring", ring, 0), ("text_data_ring", data, 40)]);
}

fn module_types(w: &mut Writer, [int, long, char, list]: [u32; 4]) {
    w.enumeration("module_state", &[("MODULE_STATE_LIVE", 0), ("MODULE_STATE_UNFORMED", 3)]);
    w.enumeration("mod_mem_type", &[("MOD_TEXT", 0), ("MOD_DATA", 1)]);
    let symbols = w.forward("elf64_sym");
    let (symbols, text) = (w.pointer(symbols), w.pointer(char));
    let tables = [
        ("symtab", symbols, 0),
        ("num_symtab", int, 8),
        ("strtab", text, 16),
        ("typetab", text, 24),
    ];
    let tables = w.structure("mod_kallsyms", 32, &tables);
    let tables = w.pointer(tables);
    let part = w.structure("module_memory", 16, &[("base", text, 0), ("size", int, 8)]);
    let parts = w.array(part, 2);
    let name = w.array(char, 56);
    let head = [
        ("state", int, 0),
        ("list", list, 8),
        ("name", name, 24),
        ("mem", parts, 80),
        ("taints", long, 112),
    ];
    let tail = [("kallsyms", tables, 120), ("refcnt", int, 128), ("source_list", list, 136)];
    w.structure("module", 160, &[&head[..], &tail].concat());
    w.structure("module_use", 16, &[("source_list", list, 0)]);
}

const SYMBOLS: [(u64, char, &str); 21] = [
    (TEXT, 'T', "_stext"),
    (TEXT + 0x100, 't', "sched_clock"),
    (TEXT + 0x180, 'T', "schedule"),
    (UTS, 'D', "init_uts_ns"),
    (INIT_TASK, 'D', "init_task"),
    (MODULES, 'd', "modules"),
    (PRB, 'd', "prb"),
    (SAVED, 'b', "savedcmd"),
    (WORDS, 'D', "__per_cpu_offset"),
    (WORDS + 0x100, 'D', "__cpu_possible_mask"),
    (WORDS + 0x200, 'D', "__cpu_online_mask"),
    (WORDS + 0x300, 'D', "nr_cpu_ids"),
    (WORDS + 0x308, 'D', "panic_cpu"),
    (WORDS + 0x310, 'b', "tgid_map"),
    (WORDS + 0x318, 'b', "tgid_map_max"),
    (WORDS + 0x320, 'D', "__gtod_offset"),
    (WORDS + 0x328, 'D', "__sched_clock_offset"),
    (KEEPER, 'b', "tk_core"),
    (BTF, 'R', "__start_BTF"),
    (BTF + 0x1_0000, 'R', "__stop_BTF"),
    (END, 'B', "_end"),
];

impl Default for Toy {
    fn default() -> Self {
        let mut memory = Regions::default();
        let mut blob = types().finish(&[]);
        let len = blob.len() as u64;
        blob.resize(0x2_0000, 0);
        memory.add(BTF, blob);
        memory.add(DATA, vec![0; 0x1_0000]);
        memory.add(HEAP, vec![0; 0x30_0000]);
        memory.add(MODULE, vec![0; 0x3000]);
        let symbols = symbols(len);
        let tables = write(&mut memory, TABLES, TEXT, Encoding::Absolute, &symbols);
        let text = format!(
            "OSRELEASE=6.99\nSYMBOL(_stext)={TEXT:x}\nSYMBOL(kallsyms_names)={:x}\nSYMBOL(kallsyms_num_syms)={:x}\n\
             SYMBOL(kallsyms_token_table)={:x}\nSYMBOL(kallsyms_token_index)={:x}\nSYMBOL(kallsyms_offsets)={:x}\n\
             SYMBOL(kallsyms_relative_base)={:x}\n",
            tables.names,
            tables.num_syms,
            tables.token_table,
            tables.token_index,
            tables.offsets,
            tables.relative_base.unwrap(),
        );
        let mut toy = Self {
            memory,
            info: VmcoreInfo::parse(text.as_bytes()),
            btf_len: len,
            log_at: 0,
            records: 0,
        };
        toy.system();
        toy.tasks();
        toy.module();
        toy.names();
        toy
    }
}

impl Toy {
    /// Takes the addresses of the symbol table out of VMCOREINFO, and makes the table as Linux 5.10
    /// has it, with `count` more functions: `added_N`.
    pub(crate) fn be_of_5_10(&mut self, count: usize) -> Tables {
        let names: Vec<String> = (0..count).map(|n| format!("added_{n}")).collect();
        let mut rows: Vec<_> =
            names.iter().enumerate().map(|(n, name)| (added(n), 't', name.as_str())).collect();
        rows.extend(symbols(self.btf_len));
        rows.sort_by_key(|row| row.0);
        // VMCOREINFO has the value of `mem_section`, the table its address.
        rows.push((END, 'B', "mem_section"));
        let text = format!(
            "OSRELEASE=5.10.0\nSYMBOL(_stext)={TEXT:x}\nSYMBOL(init_uts_ns)={UTS:x}\nSYMBOL(modules)={MODULES:x}\n\
             SYMBOL(mem_section)={HEAP:x}\nSYMBOL(swapper_pg_dir)={HEAP:x}\n"
        );
        self.info = VmcoreInfo::parse(text.as_bytes());
        write_in(Order::OffsetsFirst, &mut self.memory, TABLES, TEXT, Encoding::Absolute, &rows)
    }

    fn list(&mut self, head: u64, entries: &[u64]) {
        let ring: Vec<u64> = [&[head], entries].concat();
        for (n, at) in ring.iter().enumerate() {
            self.memory.put_u64(*at, ring[(n + 1) % ring.len()]);
            self.memory.put_u64(at + 8, ring[(n + ring.len() - 1) % ring.len()]);
        }
    }

    fn system(&mut self) {
        for (n, text) in ["Linux", "toy", "6.99", "#1 SMP", "x86_64"].iter().enumerate() {
            self.memory.put(UTS + n as u64 * 65, text.as_bytes());
        }
        self.memory.put_u64(WORDS, PER_CPU[0].wrapping_sub(DATA));
        self.memory.put_u64(WORDS + 8, PER_CPU[1].wrapping_sub(DATA));
        self.memory.put_u64(WORDS + 0x100, 0b11);
        self.memory.put_u64(WORDS + 0x200, 0b10);
        self.memory.put_u32(WORDS + 0x300, 2);
        self.memory.put_u32(WORDS + 0x308, 1);
        // As a kernel printed: "Marking stable (5006222284, -46994403)->(5778537823, -819309942)".
        self.memory.put_u64(WORDS + 0x320, (-46_994_403i64).cast_unsigned());
        self.memory.put_u64(WORDS + 0x328, (-819_309_942i64).cast_unsigned());
        // 1,000 s and 500 ns since 1970, 10 s less since the start, of which 3 s asleep.
        self.memory.put_u64(KEEPER + 8, 500 << 4);
        self.memory.put_u32(KEEPER + 16, 4);
        self.memory.put_u64(KEEPER + 24, 1000);
        self.memory.put_u64(KEEPER + 32, (-13i64).cast_unsigned());
        self.memory.put_u64(KEEPER + 48, 3);
        self.memory.put_u64(PRB, LOG);
        self.memory.put_u32(LOG, 3);
        self.memory.put_u64(LOG + 8, DESCRIPTORS);
        self.memory.put_u64(LOG + 16, INFOS);
        self.memory.put_u32(LOG + 40, 8);
        self.memory.put_u64(LOG + 48, LOG_TEXT);
    }

    fn tasks(&mut self) {
        let places = [INIT_TASK, TASKS, TASKS + TASK, TASKS + 2 * TASK];
        for (place, (pid, tgid, comm)) in places.iter().zip([
            (0u32, 0u32, "swapper/0"),
            (1, 1, "init"),
            (7, 7, "shell"),
            (8, 7, "worker"),
        ]) {
            self.memory.put_u32(*place, pid);
            self.memory.put_u32(place + 4, tgid);
            self.memory.put(place + 8, comm.as_bytes());
            self.memory.put_u64(place + 40, SIGNAL + 16 * u64::from(tgid));
        }
        self.list(INIT_TASK + 24, &[places[1] + 24, places[2] + 24]);
        self.list(SIGNAL, &[INIT_TASK + 48]);
        self.list(SIGNAL + 16, &[places[1] + 48]);
        self.list(SIGNAL + 16 * 7, &[places[2] + 48, places[3] + 48]);
    }

    fn module(&mut self) {
        let at = MODULE + 0x1000;
        self.list(MODULES, &[at + 8]);
        self.memory.put(at + 24, b"toy_module");
        self.memory.put_u64(at + 80, MODULE);
        self.memory.put_u32(at + 88, 0x1000);
        self.memory.put_u64(at + 96, MODULE + 0x1000);
        self.memory.put_u32(at + 104, 0x2000);
        self.memory.put_u64(at + 112, 1 << 12);
        let tables = at + 0x200;
        self.memory.put_u64(at + 120, tables);
        self.memory.put_u32(at + 128, 1);
        self.list(at + 136, &[]);
        let (symbols, names, kinds) = (tables + 0x100, tables + 0x300, tables + 0x400);
        self.memory.put_u64(tables, symbols);
        self.memory.put_u32(tables + 8, 6);
        self.memory.put_u64(tables + 16, names);
        self.memory.put_u64(tables + 24, kinds);
        self.memory.put(names, b"\0toy_one\0toy_two\0$x\0toy_ops\0toy_last\0");
        self.memory.put(kinds, b"?tttdd");
        let rows = [
            (0u32, 0u64),
            (1, MODULE + 0x10),
            (9, MODULE + 0x50),
            (17, MODULE + 0x10),
            (20, MODULE + 0x1800),
            (28, MODULE + 0x1840),
        ];
        for (n, (name, value)) in rows.iter().enumerate() {
            let symbol = symbols + n as u64 * 24;
            self.memory.put_u32(symbol, *name);
            self.memory.put(symbol + 6, &[u8::from(n != 0), 0]);
            self.memory.put_u64(symbol + 8, *value);
        }
    }

    fn names(&mut self) {
        self.memory.put_u64(SAVED, SLOTS);
        for slot in 0..0x8001 {
            self.memory.put_u32(SLOTS + slot * 4, u32::MAX);
        }
        let pids = HEAP + 0x5000;
        self.memory.put_u64(SLOTS + 0x2_0008, pids);
        self.memory.put_u32(SLOTS + 0x2_0010, 4);
        // The third was taken by a later task of its slot; the fourth is empty.
        let (third, later) = (7 + 0x8000, 7);
        for (n, (pid, name)) in
            [(1u32, "init"), (later, "shell"), (third, "older"), (u32::MAX, "")].iter().enumerate()
        {
            self.memory.put_u32(pids + n as u64 * 4, *pid);
            self.memory.put(SLOTS + 0x2_0018 + n as u64 * 16, name.as_bytes());
        }
        self.memory.put_u32(SLOTS + 4, 0);
        self.memory.put_u32(SLOTS + 7 * 4, 1);
        let tgids = HEAP + 0x6000;
        self.memory.put_u64(WORDS + 0x310, tgids);
        self.memory.put_u64(WORDS + 0x318, 100);
        self.memory.put_u32(tgids + 8 * 4, 7);
    }

    /// Appends a record to the log of 8 descriptors and 256 bytes, as printk does.
    pub(crate) fn print(&mut self, time: u64, text: &str) {
        let (id, index) = (self.records, self.records % 8);
        let need = (8 + text.len() as u64).next_multiple_of(8);
        let mut begin = self.log_at;
        let mut next = begin + need;
        let mut at = begin % 256;
        if begin / 256 != (next - 1) / 256 {
            // It does not fit before the end.
            next = (begin / 256 + 1) * 256 + need;
            at = 0;
        }
        if text.is_empty() {
            (begin, next) = (3, 3);
        } else {
            self.log_at = next;
            self.memory.put_u64(LOG_TEXT + at, id);
            self.memory.put(LOG_TEXT + at + 8, text.as_bytes());
        }
        self.memory.put_u64(DESCRIPTORS + index * 24, 2 << 62 | id);
        self.memory.put_u64(DESCRIPTORS + index * 24 + 8, begin);
        self.memory.put_u64(DESCRIPTORS + index * 24 + 16, next);
        self.memory.put_u64(INFOS + index * 24, id);
        self.memory.put_u64(INFOS + index * 24 + 8, time);
        self.memory.put(INFOS + index * 24 + 16, &(text.len() as u16).to_le_bytes());
        self.memory.put(INFOS + index * 24 + 18, &[0, 0, 6 << 5]);
        self.memory.put_u64(LOG + 24, id);
        self.memory.put_u64(LOG + 32, id.saturating_sub(7));
        self.records += 1;
    }
}
