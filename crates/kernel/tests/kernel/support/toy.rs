//! A small kernel: types, symbols, two CPUs, three tasks, one module, a log, names that ftrace
//! kept.

use super::kallsyms::{Encoding, Order, write, write_in};
use super::memory::Regions;
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
/// Bytes of an info.
const INFO: u64 = 88;
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
    let mut w = Writer::of_kernel();
    w.forward("elf64_sym");
    let (slots, [pids, count, names]) = (0x8001, [0x2_0008, 0x2_0010, 0x2_0018]);
    w.declare(&format!(
        "atomic_long_t 8: u64 counter@0
         list_head 16: u64 next@0, u64 prev@8
         new_utsname 390: char[65] sysname@0, char[65] nodename@65, char[65] release@130,
             char[65] version@195, char[65] machine@260
         uts_namespace 400: new_utsname name@0
         cpumask 128: u64[16] bits@0
         signal_struct 16: list_head thread_head@0
         task_struct {TASK}: int pid@0, int tgid@4, char[16] comm@8, list_head tasks@24,
             signal_struct* signal@40, list_head thread_node@48
         prb_data_blk_lpos 16: u64 begin@0, u64 next@8
         prb_desc 24: atomic_long_t state_var@0, prb_data_blk_lpos text_blk_lpos@8
         saved_cmdlines_buffer {names}: int[{slots}] map_pid_to_cmdline@0,
             int* map_cmdline_to_pid@{pids}, int cmdline_num@{count}, char[0] saved_cmdlines@{names}
         timespec64 16: u64 tv_sec@0, u64 tv_nsec@8
         tk_read_base 16: u64 xtime_nsec@0, int shift@8
         timekeeper 64: tk_read_base tkr_mono@0, u64 xtime_sec@16, timespec64 wall_to_monotonic@24,
             timespec64 monotonic_to_boot@40
         mod_kallsyms 32: elf64_sym* symtab@0, int num_symtab@8, char* strtab@16, char* typetab@24
         module_memory 16: char* base@0, int size@8
         module 160: int state@0, list_head list@8, char[56] name@24, module_memory[2] mem@80,
             u64 taints@112, mod_kallsyms* kallsyms@120, int refcnt@128, list_head source_list@136
         module_use 16: list_head source_list@0"
    ));
    w.declare("dev_printk_info 64: char[16] subsystem@0, char[48] device@16");
    let [int, long, short, char, keeper, device] =
        ["int", "u64", "u16", "u8", "timekeeper", "dev_printk_info"].map(|name| w.named(name));
    w.structure("", 72, &[("seq", int, 0), ("timekeeper", keeper, 8)]);
    let (level, flags) = (3 << 24 | 165, 5 << 24 | 160);
    let info = [
        ("seq", long, 0),
        ("ts_nsec", long, 64),
        ("text_len", short, 128),
        ("facility", char, 144),
        ("flags", char, flags),
        ("level", char, level),
        ("dev_info", device, 192),
    ];
    w.composite(4, "printk_info", INFO as u32, &info);
    w.declare(
        "prb_desc_ring 40: int count_bits@0, prb_desc* descs@8, printk_info* infos@16,
             atomic_long_t head_id@24, atomic_long_t tail_id@32
         prb_data_ring 16: int size_bits@0, char* data@8
         printk_ringbuffer 56: prb_desc_ring desc_ring@0, prb_data_ring text_data_ring@40",
    );
    w.enumeration("module_state", &[("MODULE_STATE_LIVE", 0), ("MODULE_STATE_UNFORMED", 3)]);
    w.enumeration("mod_mem_type", &[("MOD_TEXT", 0), ("MOD_DATA", 1)]);
    w
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
        self.memory.put_u64(INFOS + index * INFO, id);
        self.memory.put_u64(INFOS + index * INFO + 8, time);
        self.memory.put(INFOS + index * INFO + 16, &(text.len() as u16).to_le_bytes());
        self.memory.put(INFOS + index * INFO + 18, &[0, 0, 6 << 5]);
        // Every second record is of a device.
        let [subsystem, device] = device(id);
        let mut both = [0; 64];
        both[..subsystem.len()].copy_from_slice(subsystem.as_bytes());
        both[16..][..device.len()].copy_from_slice(device.as_bytes());
        self.memory.put(INFOS + index * INFO + 24, &both);
        self.memory.put_u64(LOG + 24, id);
        self.memory.put_u64(LOG + 32, id.saturating_sub(7));
        self.records += 1;
    }
}

/// The subsystem and the device of a record.
pub(crate) fn device(id: u64) -> [String; 2] {
    if id.is_multiple_of(2) {
        Default::default()
    } else {
        ["pci".to_owned(), format!("+pci:0000:00:{id:02}.0")]
    }
}
