//! Tests tracers that print in their own way.

use super::*;

const RW: u16 = 13;
const MAP: u16 = 14;
const BRANCH: u16 = 12;
const BLOCK: u16 = 17;
const USER: u16 = 18;

/// Returns a machine with one CPU that has these events, and a tracer.
fn traced(tracer: &str, events: &[(u64, Vec<u8>)]) -> Tracing {
    let mut machine =
        tracing(ring(vec![vec![page(events, None)]], stats(events.len() as u64, 0)), empty());
    machine.arrays[0].tracer = Some(tracer.into());
    let rw = "u64 phys:8:8:0, u64 value:16:8:0, u64 pc:24:8:0, int map_id:32:4:1, u8 opcode:36:1:0, \
              u8 width:37:1:0";
    let map =
        "u64 phys:8:8:0, u64 virt:16:8:0, u64 len:24:8:0, int map_id:32:4:1, u8 opcode:36:1:0";
    let branch = "unsigned int line:8:4:0, char func[31]:12:31:0, char file[21]:43:21:0, \
                  char correct:64:1:0";
    let block = "u64 sector:16:8:0, u32 bytes:24:4:0, u32 action:28:4:0, u32 pid:32:4:0, \
                 u32 device:36:4:0, u32 cpu:40:4:0, u16 error:44:2:0, u16 pdu_len:46:2:0, \
                 char data[]:48:0:0";
    let user = "unsigned int tgid:8:4:0, unsigned long caller[8]:16:64:0";
    machine.formats.extend([
        entry_format(RW, "mmiotrace_rw", rw),
        entry_format(MAP, "mmiotrace_map", map),
        entry_format(BRANCH, "branch", branch),
        entry_format(BLOCK, "blktrace", block),
        entry_format(USER, "user_stack", user),
    ]);
    machine
}

fn of_memory(id: u16, values: [u64; 3], map: u32, operation: u8, width: u8) -> Vec<u8> {
    payload(id, 0, 0, 7, &[&words(&values)[..], &map.to_le_bytes(), &[operation, width]].concat())
}

#[test]
fn mmiotrace_has_lines_of_its_own() {
    let mark = payload(PRINT, 0, 0, 7, &[&words(&[WORK])[..], b"begin\n\0"].concat());
    let events = [
        (1_000_000_499, of_memory(MAP, [0xfe00_0000, 0xffff_c900_0000, 0x1000], 3, 3, 0)),
        (1_000_001_500, mark),
        (1_000_002_000, of_memory(RW, [0xfe00_0010, 0x2a, 0xffff_8100], 3, 1, 4)),
        (1_000_003_000, of_memory(RW, [0xfe00_0014, 0, 0xffff_8104], 3, 2, 2)),
        (1_000_004_000, of_memory(RW, [0xfe00_0014, 0x0f_18_27, 0xffff_8104], 3, 5, 2)),
        (1_000_004_500, wake(7)),
        (1_000_005_000, of_memory(MAP, [0, 0, 0], 3, 4, 0)),
        (1_000_006_000, of_memory(MAP, [0, 0, 0], 3, 9, 0)),
    ];
    let expected = "\
MAP 1.000000 3 0xfe000000 0xffffc9000000 0x1000 0x0 0
MARK 1.000002 begin
R 4 1.000002 3 0xfe000010 0x2a 0xffff8100 0
W 2 1.000003 3 0xfe000014 0x0 0xffff8104 0
UNKNOWN 1.000004 3 0xfe000014 0f,18,27 0xffff8104 0
UNMAP 1.000005 3 0x0 0
map what?
";
    assert_eq!(body(&traced("mmiotrace", &events)), expected);
    body(&traced("nop", &events)).has(": Unknown type 14\n");
}

/// The texts are those of `seq_print_user_ip` (`trace_output.c`).
#[test]
fn user_stacks_name_files_that_are_known() {
    let stack = |process: u32, callers: [u64; 8]| {
        payload(USER, 0, 0, 7, &[&process.to_le_bytes()[..], &[0; 4], &words(&callers)].concat())
    };
    let [mine, none] = [[0x1234, 0x9000, 0, 5, 0, 0, 0, 0], [0x1234, 0, 0, 0, 0, 0, 0, 0]];
    let shown = |options: &[&str], process, callers| {
        let mut machine = traced("nop", &[(1_000, stack(process, callers))]);
        machine.arrays[0].options =
            Some(options.iter().map(|option| (*option).to_owned()).collect());
        let (out, summary) = text(&machine, &Options { no_header: true, ..Options::default() });
        (out.split_once("<user stack trace>\n").expect("a stack").1.to_owned(), summary.notes)
    };
    let set = ["sym-userobj"];
    let plain = " =>  <0000000000001234>\n";
    assert_eq!(shown(&[], 7, mine), (format!("{plain} =>  <0000000000009000>\n"), vec![]));
    let expected = " => /opt/my\\012shop[+0x234]\n =>  <0000000000009000>\n";
    assert_eq!(shown(&set, 7, mine), (expected.to_owned(), vec![]));
    let both = " => /opt/my\\012shop[+0x234] <0000000000001234>\n";
    assert_eq!(shown(&["sym-userobj", "sym-addr"], 7, none), (both.to_owned(), vec![]));
    assert_eq!(shown(&set, 8, none), (plain.to_owned(), vec![]));
    let (out, notes) = shown(&set, 9, mine);
    assert_eq!(out, format!("{plain} =>  <0000000000009000>\n"));
    assert_eq!(
        notes,
        [
            "user_stack: the files of some addresses are not known (option sym-userobj); addresses stand there"
        ]
    );
}

#[test]
fn branches() {
    let name = |text: &str, size: usize| [text.as_bytes(), &vec![0; size - text.len()]].concat();
    let rest = [&12u32.to_le_bytes()[..], &name("do_work", 31), &name("work.c", 21), &[1]].concat();
    let out =
        text(&traced("branch", &[(1_000, payload(BRANCH, 0, 0, 7, &rest))]), &Options::default()).0;
    out.starts("# tracer: branch\n#\n#           TASK-PID    CPU#    TIMESTAMP  CORRECT");
    out.ends(": [  ok  ] do_work:work.c:12\n");
}

fn of_block(sector: u64, [bytes, action]: [u32; 2], error: u16, data: &[u8]) -> Vec<u8> {
    let numbers = [bytes, action, 7, 8 << 20 | 17, 0];
    let numbers: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let ends = [error, data.len() as u16].map(u16::to_le_bytes).concat();
    payload(BLOCK, 0, 0, 7, &[&words(&[0, sector])[..], &numbers, &ends, data].concat())
}

#[test]
fn block_requests() {
    const WRITE: u32 = 2 << 16;
    let events = [
        (1_000, of_block(64, [4096, 1 | WRITE | 8 << 16], 0, &[])),
        (2_000, of_block(64, [4096, 8 | WRITE], 5, &[])),
        (3_000, of_block(0, [0, 9], 0, &[])),
        (4_000, of_block(0, [0, 10], 0, &3u64.to_be_bytes())),
        (
            5_000,
            of_block(
                64,
                [512, 15 | 1 << 16],
                0,
                &[&[0, 16, 0, 1, 0, 0, 0, 0][..], &9u64.to_be_bytes()].concat(),
            ),
        ),
        (6_000, of_block(64, [36, 7 | 512 << 16], 0, &[0x12, 0, 0, 0])),
        (7_000, of_block(0, [0, 2 | 1024 << 16], 0, b"hello")),
        (8_000, of_block(64, [512, 1 | 256], 0, &[&5u64.to_le_bytes()[..]].concat())),
        (9_000, of_block(64, [512, 16], 0, &[])),
    ];
    let mut machine = traced("blk", &events);
    let expected = [
        "  8,17   Q  WS 64 + 8 [worker]",
        "  8,17   C   W 64 + 8 [5]",
        "  8,17   P   N [worker]",
        "  8,17   U   N [worker] 3",
        "  8,17   A   R 64 + 1 <- (1,1) 9",
        "  8,17   D   R 36 (12 00 ..) [worker]",
        "  8,17   m   N hello",
        "  8,17  5,0  Q   R 64 + 1 [worker]",
        "Unknown action 10",
    ];
    let texts = |out: &str| {
        out.lines().map(|l| l.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        texts(&text(&machine, &Options { no_header: true, ..Options::default() }).0),
        expected
    );
    machine.arrays[0].tracer_options = vec!["blk_classic".into()];
    machine.arrays[0].options.get_or_insert_default().retain(|o| o != "context-info");
    let out = text(&machine, &Options::default()).0;
    let begin = "# tracer: blk\n#\n# DEV   CPU TIMESTAMP     PID ACT FLG\n#  |     |     |           |   |   |\n";
    let first = "  8,17   0     0.000001000     7  Q  WS 64 + 8 [worker]\n";
    out.starts(&format!("{begin}{first}"));
}

/// The bytes are those of `blk_trace_event_print_binary` (`blktrace.c`), also of an entry of Linux
/// 6.19, whose header is longer.
#[test]
fn block_requests_in_bytes() {
    let shown = |mut machine: Tracing| {
        machine.arrays[0].options = Some(vec!["bin".into()]);
        let mut out = Vec::new();
        let options = Options { no_header: true, ..Options::default() };
        write_trace(&mut out, &machine, 0, &options).unwrap();
        out
    };
    let begin =
        |time: u64| [&[0x07, 0x74, 0x61, 0x65, 0, 0, 0, 0][..], &time.to_le_bytes()].concat();
    let old = of_block(64, [4096, 1], 5, b"hello");
    let expected = [&begin(1_000)[..], &old[16..]].concat();
    assert_eq!(shown(traced("blk", &[(1_000, old)])), expected);
    let numbers = [4096u32, 7].map(u32::to_le_bytes).concat();
    let ends = [8u32 << 20 | 17, 0].map(u32::to_le_bytes).concat();
    let error = [0u16, 5].map(u16::to_le_bytes).concat();
    let rest = [&words(&[0, 64])[..], &numbers, &words(&[1]), &ends, &error, &[0; 12], b"hello"];
    let new = payload(BLOCK, 0, 0, 7, &rest.concat());
    assert_eq!(new.len(), 64 + 5);
    let mut machine = traced("blk", &[(2_000, new.clone())]);
    let fields = "u64 sector:16:8:0, u32 bytes:24:4:0, u64 action:32:8:0, u32 device:40:4:0, \
                  u16 error:48:2:0, u16 pdu_len:50:2:0, char data[]:64:0:0";
    let (id, block) = entry_format(BLOCK, "blktrace", fields);
    machine.formats.insert(id, block);
    assert_eq!(shown(machine), [&begin(2_000)[..], &new[16..48 + 5]].concat());
}

#[test]
fn tracers_of_latencies_show_their_longest_section() {
    let live = [(1_000, wake(7)), (2_000, wake(7)), (3_000, wake(7))];
    let kept = [
        (5_001_000, entry(7, START, 0)),
        (5_002_000, entry(7, WORK, 1)),
        (5_003_000, exit(7, WORK, 1, (5_002_000, 5_003_234))),
        (5_250_000, exit(7, START, 0, (5_001_000, 5_250_000))),
    ];
    let mut machine = traced("wakeup_rt", &live);
    machine.arrays[0].snapshot = Some(ring(vec![vec![page(&kept, None)]], stats(4, 0)));
    assert_eq!(text(&machine, &Options::default()).1.events, 3);
    machine.arrays[0].shows_longest = true;
    machine.arrays[0]
        .options
        .get_or_insert_default()
        .extend(["latency-format".into(), "display-graph".into()]);
    let out = text(&machine, &Options::default()).0;
    let columns =
        "#   REL TIME      CPU  TASK/PID       ||||     DURATION                  FUNCTION CALLS\n";
    out.has("# wakeup_rt latency trace v1.1.5 on 6.12.0\n");
    out.has(columns);
    out.has("     5002 us |   0)    worker-7    |  ..... |   1.234 us    |    do_work();\n");
}

fn reset_at(ring: &Arc<dyn Ring>, since: u64) -> Arc<dyn Ring> {
    Arc::new(Told { ring: ring.clone(), since, latency: Latency::default() })
}

#[test]
fn events_older_than_the_reset_are_not_counted() {
    let mut machine = two_cpus();
    machine.arrays[0].live = reset_at(&machine.arrays[0].live, 1_000_000_500);
    let out = text(&machine, &Options::default()).0;
    // 5 and 10 events of the CPUs were overwritten; one event of the first CPU is older than the
    // reset.
    out.has("# entries-in-buffer/entries-written: 9/19   #P:2\n");
    machine.arrays[0].live = reset_at(&machine.arrays[0].live, 1_000_002_000);
    let out = text(&machine, &Options::default()).0;
    out.has("# entries-in-buffer/entries-written: 7/7   #P:2\n");
    out.lacks("buffer started");
}

#[test]
fn words_for_preemption() {
    let mut machine = two_cpus();
    machine.preempt_dynamic_mode = Some(3);
    machine.uname = "Linux (none) 6.12.107 #1 SMP PREEMPT_RT x86_64".into();
    let model = |machine: &Tracing| {
        let out = text(machine, &Options { style: Style::Latency, ..Options::default() }).0;
        out.split("(M:").nth(1).and_then(|rest| rest.split(" VP").next()).map(str::to_owned)
    };
    // Debian's 6.12 with the patch for real time, which begins with the model lazy.
    assert_eq!(model(&machine).as_deref(), Some("preempt_rt"));
    machine.release = "6.13.0".into();
    assert_eq!(model(&machine).as_deref(), Some("lazy"));
    machine.release = "6.18.0".into();
    assert_eq!(model(&machine).as_deref(), Some("PREEMPT_{RT,(lazy)}"));
}

#[test]
fn contexts_of_a_timer() {
    let fields = "unsigned int seqnum:8:4:0, int context:12:4:1, u64 timer_latency:16:8:0";
    let event = |context: u64| payload(16, 0, 0, 7, &words(&[context << 32 | 5, 777]));
    let mut machine =
        traced("timerlat", &[(1_000, event(0)), (2_000, event(1)), (3_000, event(2))]);
    machine.formats.extend([entry_format(16, "timerlat", fields)]);
    let out = body(&machine);
    let contexts: Vec<&str> = out.lines().filter_map(|l| l.split(" context ").nth(1)).collect();
    let ends =
        ["   irq", "thread", "user-ret"].map(|word| format!("{word} timer_latency       777 ns"));
    assert_eq!(contexts, ends);
}

#[test]
fn columns_of_noise() {
    let header = |tracer: &str, uname: &str| {
        let mut machine = traced(tracer, &[(1_000, wake(7))]);
        machine.uname = uname.into();
        text(&machine, &Options::default()).0
    };
    header("osnoise", "").has("NOISE  %% OF CPU  NOISE");
    header("osnoise", "SMP PREEMPT_RT")
        .has("#                              |||| / _--=> preempt-lazy-depth\n");
    header("timerlat", "SMP PREEMPT_RT").has("CPU# |||||||   TIMESTAMP    ID");
}
