//! A small machine for tests: a few kinds of events, and rings of pages in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use lastwords_bytes::ByteOrder;
use lastwords_ftrace::{
    Array, Clock, CpuRing, FlagColumns, HeaderPage, Mapped, Parameter, ParameterKind, Ring, Stats,
    SubBufferInfo, Symbol, SymbolRow, Symbols, Tracing,
};
use lastwords_trace::evidence::{Evidence, Verdict};

use lastwords_ftrace::format_file;
use lastwords_ftrace::page::header;

const PAGE: usize = 4096;

/// Three functions of 256 bytes each, and interrupt code.
struct Functions;

const FUNCTIONS: [(u64, &str, Option<&str>); 5] = [
    (0xffff_ffff_8100_0000, "start_work", None),
    (0xffff_ffff_8100_0100, "do_work", None),
    (0xffff_ffff_8100_0200, "__irqentry_text_start", None),
    (0xffff_ffff_8100_0300, "__irqentry_text_end", None),
    (0xffff_ffff_c000_0000, "probe", Some("gadget")),
];

impl Symbols for Functions {
    fn at(&self, address: u64) -> Option<Symbol> {
        let (start, name, module) = FUNCTIONS.iter().rev().find(|f| f.0 <= address)?;
        let offset = address - start;
        let module = module.map(str::to_owned);
        (offset < 256).then(|| Symbol { name: (*name).to_owned(), offset, size: 256, module })
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        for (address, name, module) in FUNCTIONS {
            each(SymbolRow { address, kind: 't', name, module });
        }
    }

    /// Process 7 has a program, process 8 has ended, and nothing is known of others.
    fn mapped(&self, tgid: u32, address: u64) -> Mapped {
        match (tgid, address) {
            (7, 0x1000..0x2000) => {
                Mapped::File { path: "/opt/my\nshop".to_owned(), offset: address - 0x1000 }
            }
            (7 | 8, _) => Mapped::None,
            _ => Mapped::Unknown,
        }
    }

    fn parameters(&self, function: &str) -> Option<Vec<Parameter>> {
        let parameter = |name: &str, kind| Parameter { name: name.to_owned(), kind };
        let names = vec![(0, "IDLE".to_owned()), (-1, "BUSY".to_owned())];
        (function == "do_work").then(|| {
            vec![
                parameter("work", ParameterKind::Pointer),
                parameter("cpu", ParameterKind::Number { signed: true }),
                parameter("flags", ParameterKind::Number { signed: false }),
                parameter("state", ParameterKind::Enumeration { names }),
                parameter("range", ParameterKind::Other { kind: "STRUCT", size: 12 }),
                parameter("", ParameterKind::Unknown),
            ]
        })
    }
}

/// A ring of pages in memory.
pub(crate) struct Pages {
    pub(crate) cpus: Vec<CpuRing>,
    pub(crate) pages: Vec<Vec<Vec<u8>>>,
}

impl Ring for Pages {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        bytes.clear();
        bytes.extend_from_slice(&self.pages[cpu][index]);
        match header(bytes, HeaderPage::of_word_size(8), ByteOrder::Little) {
            Ok(h) => SubBufferInfo {
                committed: h.committed,
                consumed: 0,
                missed: h.missed,
                verdict: Verdict::Committed,
            },
            Err(_) if bytes.is_empty() => SubBufferInfo::MISSING,
            Err(_) => SubBufferInfo {
                committed: 4080,
                consumed: 0,
                missed: None,
                verdict: Verdict::Invalid,
            },
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}

/// Returns a page of events, each with its time and payload. `missed` events are missing before it.
pub(crate) fn page(events: &[(u64, Vec<u8>)], missed: Option<u64>) -> Vec<u8> {
    let start = events.first().map_or(0, |(time, _)| *time);
    let mut data = Vec::new();
    let mut last = start;
    for (time, payload) in events {
        let delta = (time - last) as u32;
        last = *time;
        let padded = payload.len().next_multiple_of(4);
        data.extend_from_slice(&(delta << 5).to_le_bytes());
        data.extend_from_slice(&(padded as u32 + 4).to_le_bytes());
        data.extend_from_slice(payload);
        data.resize(data.len().next_multiple_of(4), 0);
    }
    let mut commit = data.len() as u64;
    if let Some(missed) = missed {
        commit |= lastwords_ftrace::page::MISSED_EVENTS | lastwords_ftrace::page::MISSED_STORED;
        data.extend_from_slice(&missed.to_le_bytes());
    }
    let mut out = [start.to_le_bytes(), commit.to_le_bytes()].concat();
    out.extend_from_slice(&data);
    assert!(out.len() <= PAGE);
    out.resize(PAGE, 0);
    out
}

/// Returns a ring whose CPUs have these pages.
pub(crate) fn ring(pages: Vec<Vec<Vec<u8>>>, stats: Stats) -> Arc<dyn Ring> {
    let cpu = |(cpu, pages): (usize, &Vec<Vec<u8>>)| CpuRing {
        cpu: cpu as u32,
        sub_buffers: pages.len(),
        sub_buffer_size: pages.first().map_or(PAGE, Vec::len) as u32,
        stats,
    };
    Arc::new(Pages { cpus: pages.iter().enumerate().map(cpu).collect(), pages })
}

/// Returns the payload of an event: the common fields, then `rest`.
pub(crate) fn payload(id: u16, flags: u8, preempt: u8, pid: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = id.to_le_bytes().to_vec();
    out.extend([flags, preempt]);
    out.extend_from_slice(&pid.to_le_bytes());
    out.extend_from_slice(rest);
    out
}

/// Returns the bytes of words of 64 bits.
pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(crate) const FUNCTION: u16 = 1;
pub(crate) const STACK: u16 = 4;
pub(crate) const PRINT: u16 = 5;
pub(crate) const EXIT: u16 = 10;
pub(crate) const ENTRY: u16 = 11;
pub(crate) const WAKE: u16 = 300;
pub(crate) const BROKEN: u16 = 301;
pub(crate) const OPEN: u16 = 302;

/// Returns an event format. Fields are `declaration:offset:size:signed`, separated by commas; the
/// common fields are put before them.
pub(crate) fn format(
    system: &str,
    id: u16,
    name: &str,
    fields: &str,
    print: &str,
) -> (u16, lastwords_ftrace::Format) {
    let common = "unsigned short common_type:0:2:0, unsigned char common_flags:2:1:0, \
                  unsigned char common_preempt_count:3:1:0, int common_pid:4:4:1";
    let line = |field: &str| {
        let parts: Vec<&str> = field.trim().split(':').collect();
        format!(
            "\tfield:{};\toffset:{};\tsize:{};\tsigned:{};\n",
            parts[0], parts[1], parts[2], parts[3]
        )
    };
    let [common, own] = [common, fields].map(|all| all.split(',').map(line).collect::<String>());
    let text = format!("name: {name}\nID: {id}\nformat:\n{common}\n{own}\nprint fmt: {print}\n");
    (id, format_file::parse(system, &text).expect("a format"))
}

/// Returns the format of an entry of ftrace's own.
pub(crate) fn entry_format(id: u16, name: &str, fields: &str) -> (u16, lastwords_ftrace::Format) {
    format("ftrace", id, name, fields, "\"\"")
}

/// Returns a format with this print format and these fields of its own.
pub(crate) fn printed(fields: &str, print_format: &str) -> lastwords_ftrace::Format {
    let (_, mut format) = format("s", 1, "e", fields, print_format);
    format.fields.retain(|field| !field.is_common);
    format
}

/// Returns the formats of the events that samples have.
fn formats() -> [(u16, lastwords_ftrace::Format); 8] {
    let ip = "unsigned long ip:8:8:0";
    let function = "unsigned long func:8:8:0, int depth:16:4:1";
    let exit = "unsigned int overrun:20:4:0, unsigned long long calltime:24:8:0, \
                unsigned long long rettime:32:8:0";
    let print = "\"%ps: %s\", (void *)REC->ip, REC->buf";
    let wake = ("char comm[8]:8:8:0, pid_t pid:16:4:1", "\"comm=%s pid=%d\", REC->comm, REC->pid");
    let call = "int __syscall_nr:8:4:1, int flags:16:8:0";
    [
        entry_format(FUNCTION, "function", &format!("{ip}, unsigned long parent_ip:16:8:0")),
        entry_format(STACK, "kernel_stack", "int size:8:4:1, unsigned long caller[8]:16:64:0"),
        format("ftrace", PRINT, "print", &format!("{ip}, char buf[]:16:0:0"), print),
        entry_format(ENTRY, "funcgraph_entry", function),
        entry_format(EXIT, "funcgraph_exit", &format!("{function}, {exit}")),
        format("sched", WAKE, "wake", wake.0, wake.1),
        format("sched", BROKEN, "broken", "int a:8:4:1", "\"%d\", only_the_kernel(REC->a)"),
        format("syscalls", OPEN, "sys_enter_open", call, "\"\""),
    ]
}

/// Returns a machine with these rings as the top level and as instance `extra`.
pub(crate) fn tracing(top: Arc<dyn Ring>, extra: Arc<dyn Ring>) -> Tracing {
    let array = |name: &str, live: Arc<dyn Ring>| Array {
        tracer: Some("nop".into()),
        clock: Some(Clock { name: "local".into(), is_in_ns: true }),
        options: Some(
            ["print-parent", "annotate", "context-info", "irq-info"].map(str::to_owned).to_vec(),
        ),
        is_on: Some(false),
        ..Array::unknown(name, live)
    };
    Tracing {
        cpus: 2,
        formats: formats().into_iter().collect(),
        comms: BTreeMap::from([(7, "worker".to_owned()), (9, "a long name here".to_owned())]),
        tgids: BTreeMap::from([(7, 5)]),
        printk_formats: BTreeMap::from([(0xffff_ffff_8200_0000, "step \"%d\"\n".to_owned())]),
        symbols: Arc::new(Functions),
        flag_columns: FlagColumns::of_release(""),
        clocks: "[local] global counter".into(),
        arrays: vec![array("", top), array("extra", extra)],
        ..Tracing::from_uname(
            "Linux (none) 6.12.0 x86_64",
            HeaderPage::of_word_size(8),
            ByteOrder::Little,
        )
    }
}

/// Returns a machine whose only array has CPUs with these pages.
pub(crate) fn alone(pages: Vec<Vec<Vec<u8>>>, stats: Stats) -> Tracing {
    let top = ring(pages, stats);
    let mut machine = tracing(top.clone(), top);
    machine.arrays.truncate(1);
    machine
}

/// Returns a machine without events.
pub(crate) fn silent() -> Tracing {
    alone(Vec::new(), Stats::default())
}

/// Returns a wake-up of pid 9.
pub(crate) fn wake(pid: u32) -> Vec<u8> {
    payload(WAKE, 1, 0x11, pid, &[&b"init\0\0\0\0"[..], &9u32.to_le_bytes()].concat())
}
