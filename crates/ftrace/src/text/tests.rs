use lastwords_testkit::text::Text as _;
use std::sync::Arc;

use crate::{CpuRing, Latency, Stats, SubBufferInfo, Tracing};
use lastwords_trace::evidence::Evidence;
use proptest::prelude::*;

use super::*;
use crate::samples::*;

const START: u64 = FUNCTIONS_AT;
const FUNCTIONS_AT: u64 = 0xffff_ffff_8100_0000;
const WORK: u64 = FUNCTIONS_AT + 0x100;
const IRQ: u64 = FUNCTIONS_AT + 0x200;

fn chosen(choice: Choice) -> Options {
    Options { choice, ..Options::default() }
}

fn on_cpu(cpu: u32) -> Choice {
    Choice { cpus: vec![cpu], ..Choice::default() }
}

fn stats(entries: u64, overrun: u64) -> Stats {
    Stats { entries, overrun, ..Stats::default() }
}

fn empty() -> Arc<dyn Ring> {
    ring(vec![Vec::new(), Vec::new()], Stats::default())
}

fn text(tracing: &Tracing, options: &Options) -> (String, Summary) {
    let mut out = Vec::new();
    let summary = write_trace(&mut out, tracing, 0, options).unwrap();
    (String::from_utf8(out).unwrap(), summary)
}

fn body(tracing: &Tracing) -> String {
    text(tracing, &Options { no_header: true, ..Options::default() }).0
}

fn two_cpus() -> Tracing {
    let first = vec![
        page(&[(1_000_000_499, wake(7)), (1_000_000_500, wake(9))], None),
        page(&[(1_000_009_000, wake(0))], Some(3)),
    ];
    let second = vec![page(
        &[(1_000_000_500, wake(8)), (1_000_004_000, payload(BROKEN, 0, 0, 7, &5u32.to_le_bytes()))],
        None,
    )];
    tracing(ring(vec![first, second], stats(5, 10)), empty())
}

#[test]
fn the_begin_of_a_cpu_is_marked_from_the_third_event_on() {
    for (before, is_marked) in [(1, false), (2, true), (3, true)] {
        let times = (0..before).map(|at| (1_000_000_000 + at, wake(7))).collect::<Vec<_>>();
        let lanes = vec![vec![page(&times, None)], vec![page(&[(1_000_009_000, wake(8))], None)]];
        let out = body(&tracing(ring(lanes, stats(before, 10)), empty()));
        assert_eq!(out.contains("##### CPU 1 buffer started ####"), is_marked, "{before}: {out}");
        out.lacks("CPU 0");
    }
}

#[test]
fn reading_ahead_changes_no_text() {
    // Rings of this size are read ahead, unless the text ends at a time.
    let lane = |first: u64| {
        let times = (0..400).map(|at| (first + at * 1000, first + at * 1000 + at));
        times.map(|(one, two)| page(&[(one, wake(7)), (two, wake(9))], None)).collect()
    };
    let tracing = tracing(ring(vec![lane(5000), lane(70_000)], stats(1600, 0)), empty());
    let ahead = text(&tracing, &Options::default());
    assert_eq!(ahead.1.events, 1600);
    assert_eq!(
        ahead,
        text(&tracing, &chosen(Choice { until: Some(u64::MAX), ..Choice::default() }))
    );
}

#[test]
fn lines_as_the_kernel_has_them() {
    let (out, summary) = text(&two_cpus(), &Options::default());
    let expected = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 10/30   #P:2
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
          worker-7       [000] d..11     1.000000: wake: comm=init pid=9
a long name here-9       [000] d..11     1.000001: wake: comm=init pid=9
##### CPU 1 buffer started ####
           <...>-8       [001] d..11     1.000001: wake: comm=init pid=9
          worker-7       [001] .....     1.000004: broken: 5
CPU:0 [LOST 3 EVENTS]
          <idle>-0       [000] d..11     1.000009: wake: comm=init pid=9
";
    assert_eq!(out, expected);
    assert_eq!((summary.events, summary.bytes), (5, expected.len() as u64));
    assert_eq!(summary.notes.len(), 1);
    assert!(summary.notes[0].contains("only_the_kernel"), "{:?}", summary.notes);
}

/// The kernel prints user events by their fields, whatever their print format is. A probe in a
/// group of that name is printed as a probe.
#[test]
fn user_events_are_printed_by_their_fields() {
    let fields = "u32 id:8:4:0, __rel_loc char text[]:12:4:1, __rel_loc u8 chars[]:16:4:1, \
                  char name[]:20:8:1, struct point at:28:8:1, struct chars big:36:12:1";
    let print = "\"id=%u\", REC->id";
    let mut formats = vec![
        format("user_events", 900, "order", fields, print),
        format("user_events_multi", 901, "empty.1f", "u8 x:8:1:0", "\"\""),
        format("user_events", 902, "probe", "unsigned long __probe_ip:8:8:0", "\"x\""),
    ];
    formats[1].1.fields.retain(|field| field.is_common);
    let numbers = [7u32, 3 << 16 | 32, 2 << 16 | 31, 0, 0, 5, 0, 0, 0, 0];
    let mut order: Vec<u8> = numbers.iter().flat_map(|word| word.to_le_bytes()).collect();
    order[12..16].copy_from_slice(b"abc\0");
    order.extend_from_slice(b"hi\0\xff\x01");
    let events = [(900, order), (901, Vec::new()), (902, words(&[FUNCTIONS_AT]))];
    let events = events.map(|(id, rest)| (1_000_000_000, payload(id, 0, 0, 7, &rest)));
    let mut tracing = alone(vec![vec![page(&events, None)]], Stats::default());
    tracing.formats.extend(formats);
    let out = body(&tracing);
    let texts: Vec<_> = out.lines().filter_map(|line| line.split_once(".000000: ")).collect();
    assert_eq!(
        texts.iter().map(|(_, text)| *text).collect::<Vec<_>>(),
        [
            "order: id=0x7 (7) text=hi chars=ff,01 name=abc at=0x5 (5) big=<INVALID-SIZE>",
            "empty.1f:No fields found",
            "probe: x",
        ]
    );
}

#[test]
fn selections() {
    let tracing = two_cpus();
    let lines =
        |choice: Choice| text(&tracing, &Options { no_header: true, ..chosen(choice) }).1.events;
    assert_eq!(lines(Choice { cpus: vec![1], ..Choice::default() }), 2);
    assert_eq!(lines(Choice { events: vec!["sched:bro*".into()], ..Choice::default() }), 1);
    assert_eq!(
        lines(Choice { events: vec!["wake".into()], last: Some(2), ..Choice::default() }),
        2
    );
    let (since, until) = (Some(1_000_000_500), Some(1_000_004_000));
    assert_eq!(lines(Choice { since, until, ..Choice::default() }), 3);
    assert!(write_trace(&mut Vec::new(), &tracing, 0, &chosen(on_cpu(7))).is_err());
    assert!(write_trace(&mut Vec::new(), &tracing, 2, &Options::default()).is_err());
}

#[test]
fn other_forms() {
    let tracing = two_cpus();
    let form = |style| text(&tracing, &Options { style, no_header: true, ..chosen(on_cpu(1)) }).0;
    assert_eq!(form(Style::Raw), "8 1 1000000500 type: 300\n7 1 1000004000 type: 301\n");
    form(Style::Fields)
        .starts("           <...>-8       [001] d..11     1.000001: wake: comm=init pid=0x9 (9)\n");
    let help = text(&tracing, &chosen(Choice { snapshot: true, ..Choice::default() })).0;
    help.starts("# tracer: nop\n#\n#\n# * Snapshot is freed *\n#\n");
}

/// The kernel's own lines (6.18), of an event of 8 bytes that has no text in these forms: `00000b45
/// 00000000 000035f09eafd06 type: 5`.
#[test]
fn numbers_in_bytes() {
    let mut tracing = two_cpus();
    let mut form = |option: &str| {
        tracing.arrays[0].options = Some(vec!["context-info".into(), option.into()]);
        let mut out = Vec::new();
        let options = Options { no_header: true, ..chosen(on_cpu(1)) };
        write_trace(&mut out, &tracing, 0, &options).unwrap();
        out
    };
    let hex = "00000008 00000001 000000003b9acbf4 type: 300\n\n00000007 00000001 000000003b9ad9a0 type: 301\n\n";
    assert_eq!(String::from_utf8(form("hex")).unwrap(), hex);
    let line = |pid: u8, time: [u8; 4], id: &str| {
        [&[pid, 0, 0, 0, 1, 0, 0, 0], &time[..], &[0; 4], id.as_bytes()].concat()
    };
    let binary = [
        line(8, [0xf4, 0xcb, 0x9a, 0x3b], "type: 300\n"),
        line(7, [0xa0, 0xd9, 0x9a, 0x3b], "type: 301\n"),
    ];
    assert_eq!(form("bin"), binary.concat());
}

#[test]
fn options_of_the_array() {
    let mut tracing = two_cpus();
    tracing.arrays[0].options.get_or_insert_default().push("record-tgid".into());
    body(&tracing).starts("          worker-7       (      5) [000] d..11     1.000000: wake");
    tracing.arrays[0].options = Some(vec!["context-info".into(), "latency-format".into()]);
    body(&tracing).starts("  worker-7         0d..11 1000000us : wake: comm=init pid=9\n");
    tracing.arrays[0].options.get_or_insert_default().push("verbose".into());
    body(&tracing).starts(
        "          worker       7   0 1 00000001 00000000 [000f4240] 1000.000ms (+0.000ms): wake",
    );
}

/// A ring that was reset at a time, and whose tracer measures latencies.
struct Told {
    ring: Arc<dyn Ring>,
    since: u64,
    latency: Latency,
}

impl Ring for Told {
    fn cpus(&self) -> &[CpuRing] {
        self.ring.cpus()
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        self.ring.sub_buffer(cpu, index, bytes)
    }

    fn evidence(&self) -> Evidence {
        self.ring.evidence()
    }

    fn time_start(&self) -> u64 {
        self.since
    }

    fn latency(&self) -> Latency {
        self.latency.clone()
    }
}

#[test]
fn the_latency_format_begins_with_the_longest() {
    let mut tracing = two_cpus();
    tracing.arrays[0].options = Some(vec!["context-info".into(), "latency-format".into()]);
    let latency = Latency {
        cpu: 1,
        time: 12_999,
        comm: "worker".into(),
        pid: 7,
        uid: 1000,
        nice: -5,
        policy: 1,
        rt_priority: 50,
        section: (WORK, IRQ + 4),
    };
    let ring = tracing.arrays[0].live.clone();
    tracing.arrays[0].live = Arc::new(Told { ring, since: 0, latency });
    let (out, _) = text(&tracing, &Options::default());
    out.has("# latency: 12 us, #10/30, CPU#1 | (M:");
    out.has("#    | task: worker-7 (uid:1000 nice:-5 policy:1 rt_prio:50)\n");
    let section = "#  => started at: do_work\n#  => ended at:   __irqentry_text_start\n#\n#\n";
    out.has(&format!("#    -----------------\n{section}"));
}

#[test]
fn entries_of_ftrace() {
    let print = payload(PRINT, 0, 0, 7, &[&words(&[WORK + 4])[..], b"hello\n\0"].concat());
    let function = payload(FUNCTION, 0, 0, 7, &words(&[WORK, 0xffff_ffff_c000_0010]));
    let stack = payload(STACK, 0, 0, 7, &words(&[2, START + 1, 5, u64::MAX]));
    let open = payload(OPEN, 0, 0, 7, &words(&[2, 0x241]));
    let events = [
        (1000, print),
        (2000, function),
        (3000, stack),
        (4000, open),
        (5000, payload(77, 0, 0, 7, &[])),
    ];
    let mut tracing = tracing(ring(vec![vec![page(&events, None)]], stats(5, 0)), empty());
    let texts: Vec<String> = body(&tracing)
        .lines()
        .map(|l| l.split(": ").skip(1).collect::<Vec<_>>().join(": "))
        .collect();
    let expected = [
        "do_work: hello",
        "do_work <-probe",
        "<stack trace>",
        "",
        "",
        "sys_open(flags: 241)",
        "Unknown type 77",
    ];
    assert_eq!(texts, expected);
    body(&tracing).has("<stack trace>\n => start_work\n => 0x00000005\n");
    tracing.arrays[0]
        .options
        .get_or_insert_default()
        .extend(["sym-offset".to_owned(), "sym-addr".to_owned()]);
    body(&tracing).has("do_work+0x4/0x100 <ffffffff81000104>: hello\n");
    body(&tracing).has("<-probe+0x10/0x100 [gadget] <ffffffffc0000010>\n");
}

fn entry(pid: u32, function: u64, depth: u64) -> Vec<u8> {
    payload(ENTRY, 0, 0, pid, &words(&[function, depth]))
}

fn exit(pid: u32, function: u64, depth: u64, times: (u64, u64)) -> Vec<u8> {
    payload(EXIT, 0, 0, pid, &words(&[function, depth, times.0, times.1]))
}

#[test]
fn function_graph() {
    let comment = payload(PRINT, 0, 0, 7, &[&words(&[WORK])[..], b"note\n\0"].concat());
    let events = [
        (1000, entry(7, START, 0)),
        (2000, entry(7, WORK, 1)),
        (3000, exit(7, WORK, 1, (2000, 3234))),
        (4000, comment),
        (5000, entry(7, IRQ, 1)),
        (6000, exit(7, IRQ, 1, (5000, 6000))),
        (250_000, exit(7, START, 0, (1000, 250_000))),
        (260_000, exit(9, WORK, 0, (1, 20_001))),
    ];
    let mut tracing =
        tracing(ring(vec![vec![page(&events, None)], Vec::new()], stats(8, 0)), empty());
    tracing.arrays[0].tracer = Some("function_graph".into());
    let expected = "\
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  start_work() {
 0)   1.234 us    |    do_work();
 0)               |  /* note */
 0)   ==========> |
 0)   1.000 us    |    __irqentry_text_start();
 0)   <========== |
 0) ! 249.000 us  |  }
 ------------------------------------------
 0)    worker-7    =>   a long -9   
 ------------------------------------------

 0) + 20.000 us   |  } /* do_work */
";
    assert_eq!(text(&tracing, &Options::default()).0, expected);
    tracing.arrays[0].tracer_options =
        vec!["funcgraph-abstime".into(), "funcgraph-proc".into(), "funcgraph-tail".into()];
    let out = text(&tracing, &Options::default()).0;
    out.has("#     TIME         TASK/PID                      FUNCTION CALLS\n");
    out.has("    0.000250 |     worker-7    | } /* start_work */\n");
    // Exit events with another name than the kernel's are ordinary events, and each entry is shown
    // once.
    tracing
        .formats
        .values_mut()
        .find(|format| format.name == "funcgraph_exit")
        .expect("it is there")
        .name = "other".into();
    tracing.arrays[0].tracer_options.clear();
    let (out, summary) = text(&tracing, &Options::default());
    assert_eq!((out.matches("() {\n").count(), summary.events), (3, 8), "{out}");
}

proptest! {
    #[test]
    fn hostile_pages_are_printed_or_passed_over(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..300, graph in any::<bool>()) {
        let events = [
            (1000, entry(7, START, 0)), (2000, wake(7)), (3000, exit(7, START, 0, (2000, 3234))),
            (4000, payload(STACK, 0, 0, 7, &words(&[1, START]))),
            (5000, payload(OPEN, 0, 0, 7, &words(&[1, START]))),
        ];
        let mut damaged = page(&events, None);
        let end = (at + bytes.len()).min(damaged.len());
        damaged[at..end].copy_from_slice(&bytes[..end - at]);
        let mut tracing = tracing(ring(vec![vec![damaged.clone()], vec![damaged]], stats(0, 1)), empty());
        if graph {
            tracing.arrays[0].tracer = Some("function_graph".into());
        }
        let mut out = Vec::new();
        for style in [Style::AsSet, Style::Raw, Style::Fields] {
            write_trace(&mut out, &tracing, 0, &Options { style, ..Options::default() }).unwrap();
        }
        prop_assert!(out.len() < 1 << 20);
    }
}

proptest! {
    /// Tests that the fast path and the general one print the same.
    #[test]
    fn lines_in_place_are_those_of_the_printer(
        pages in proptest::collection::vec(
            (0usize..2, proptest::option::of(0u64..9), proptest::collection::vec((0u64..400_000_000, 0u32..12, 0u16..6), 1..60)),
            1..12,
        ),
        overrun in 0u64..2,
    ) {
        let (mut cpus, mut now) = (vec![Vec::new(), Vec::new()], [1_000_000_000u64, 1_200_000_000]);
        for (cpu, missed, events) in pages {
            let event = |(delta, pid, kind): (u64, u32, u16)| {
                now[cpu] += delta % (1 << 27);
                let rest = payload(BROKEN, kind as u8, 0, pid, &pid.to_le_bytes());
                (now[cpu], if kind == 0 { rest } else { wake(pid) })
            };
            let events: Vec<_> = events.into_iter().map(event).collect();
            cpus[cpu].push(page(&events, missed));
        }
        let tracing = tracing(ring(cpus, stats(5, overrun)), empty());
        let options = Options { no_header: true, ..Options::default() };
        let ring = &*tracing.arrays[0].live;
        let mut merge = Merge::new(&tracing, ring, &[0, 1]);
        let mut printer = Printer::new(&tracing, &tracing.arrays[0], ring, &options);
        let (mut slow, mut events) = (Vec::new(), 0);
        while merge.head().is_some() {
            printer.event(&mut slow, &mut merge);
            events += 1;
        }
        let (quick, summary) = text(&tracing, &options);
        prop_assert_eq!(quick.as_bytes(), slow.as_slice());
        prop_assert_eq!(summary.events, events);
    }
}

mod tracers;
