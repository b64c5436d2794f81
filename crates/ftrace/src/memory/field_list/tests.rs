//! Formats of a kernel whose classes have functions for the lists of their fields.

use super::super::formats;
use crate::Format;
use crate::kernel_memory::{Regions, TEXT};
use lastwords_testkit::btf::Writer;
use lastwords_trace::evidence::Evidence;

const EVENTS: u64 = TEXT + 0x1000;
const COMMON: u64 = TEXT + 0x1010;
/// A function of the kernel, as `get_fields`.
const FUNCTION: u64 = TEXT + 0x10;
const HEAP: u64 = 0xffff_8880_0000_0000;
/// Offsets in a `struct user_event`.
const CALL: u64 = 24;
const CLASS: u64 = 120;
const FIELDS: u64 = 160;
/// The same in a `struct syscall_metadata`.
const ENTER_FIELDS: u64 = 16;
const ENTER_EVENT: u64 = 32;

/// Declaration without bounds, name, offset, size, sign and `len` of a field.
type Row<'a> = (&'a str, &'a str, u32, u32, bool, u32);

/// The kernel that is made. Each object is in a page of its own.
struct Made {
    memory: Regions,
    next: u64,
    calls: Vec<u64>,
}

impl Made {
    /// A kernel without events, and with the common field `common_type`.
    fn new() -> Self {
        let mut made = Self { memory: Regions::default(), next: HEAP, calls: Vec::new() };
        made.fields(COMMON, &[("unsigned short", "common_type", 0, 2, false, 0)]);
        made
    }

    fn room(&mut self) -> u64 {
        self.next += 0x2000;
        self.memory.put(self.next, &[0; 4096]);
        self.next
    }

    fn text(&mut self, text: &str) -> u64 {
        let at = self.room();
        self.memory.put(at, text.as_bytes());
        at
    }

    /// Links entries whose links are their first member.
    fn list(&mut self, head: u64, entries: &[u64]) {
        let ring = [&[head], entries].concat();
        for (at, next) in ring.iter().zip(ring.iter().cycle().skip(1)) {
            self.memory.put_u64(*at, *next);
            self.memory.put_u64(next + 8, *at);
        }
    }

    /// Adds a list of fields, the newest first.
    fn fields(&mut self, head: u64, rows: &[Row<'_>]) {
        let mut entries = Vec::new();
        for (type_name, name, offset, size, is_signed, len) in rows {
            let at = self.room();
            for (member, text) in [(16, name), (24, type_name)] {
                let text = self.text(text);
                self.memory.put_u64(at + member, text);
            }
            let numbers = [*offset, *size, u32::from(*is_signed), *len];
            for (member, number) in (32..).step_by(4).zip(numbers) {
                self.memory.put_u32(at + member, number);
            }
            entries.insert(0, at);
        }
        self.list(head, &entries);
    }

    /// Writes a call and its class. Its id is the number of the call.
    fn call(&mut self, [call, class]: [u64; 2], system: &str, name: &str, data: u64) {
        let [system, name] = [system, name].map(|text| self.text(text));
        let print = self.text("\"%d\", REC->x");
        self.calls.push(call);
        self.memory.put_u32(call + 32, self.calls.len() as u32);
        for (member, value) in [(16, class), (24, name), (48, print), (56, data)] {
            self.memory.put_u64(call + member, value);
        }
        self.memory.put_u64(class, system);
        self.memory.put_u64(class + 8, if data == 0 { 0 } else { FUNCTION });
        self.list(class + 16, &[]);
    }

    fn user_event(&mut self, name: &str, rows: &[Row<'_>]) -> u64 {
        let event = self.room();
        self.call([event + CALL, event + CLASS], "user_events", name, event);
        self.fields(event + FIELDS, rows);
        event
    }

    /// Returns the formats by their names, and the places of the gaps.
    fn read(mut self) -> (Vec<Format>, Vec<String>) {
        let calls = std::mem::take(&mut self.calls);
        self.list(EVENTS, &calls);
        let symbols = [(EVENTS, "ftrace_events"), (COMMON, "ftrace_common_fields")];
        let kernel = self.memory.open(types().finish(&[]), &symbols);
        let mut evidence = Evidence::default();
        let formats = formats::read(&kernel, &mut evidence).unwrap();
        let gaps = evidence.gaps.into_iter().map(|gap| gap.place).collect();
        (formats.into_values().collect(), gaps)
    }
}

/// The types of Linux 6.12, with other offsets.
fn types() -> Writer {
    let mut w = Writer::of_kernel();
    w.declare(&format!(
        "list_head 16: void* next@0, void* prev@8
         ftrace_event_field 48: list_head link@0, char* name@16, char* type@24, s32 offset@32,
             s32 size@36, u32 is_signed@40, s32 len@44
         trace_event_class 32: char* system@0, void* get_fields@8, list_head fields@16
         trace_event 16: s32 type@0, void* funcs@8
         trace_event_call 96: list_head list@0, trace_event_class* class@16, char* name@24,
             trace_event event@32, char* print_fmt@48, void* data@56, s32 flags@64
         syscall_metadata 64: char* name@0, s32 syscall_nr@8, list_head enter_fields@{ENTER_FIELDS},
             trace_event_call* enter_event@{ENTER_EVENT}
         user_event 192: trace_event_call call@{CALL}, trace_event_class class@{CLASS},
             list_head fields@{FIELDS}"
    ));
    w
}

/// Declaration, offset, size and sign of an event's own fields.
fn own(format: &Format) -> Vec<(&str, u32, u32, bool)> {
    let own = format.fields.iter().filter(|field| !field.is_common);
    own.map(|f| (&*f.declaration, f.offset, f.size, f.is_signed)).collect()
}

/// Fields of each way in which a program can declare one. The numbers of elements are not set: one
/// is zero, the others are what was in memory before.
#[test]
fn fields_of_user_events_are_those_of_the_event() {
    let mut made = Made::new();
    made.user_event(
        "order",
        &[
            ("u32", "id", 8, 4, false, 0xffff_fff0),
            ("__rel_loc char[]", "text", 12, 4, true, 0),
            ("__rel_loc u8[]", "bytes", 16, 4, true, 77),
            ("__data_loc char[]", "late", 20, 4, true, 5),
            ("char[20]", "name", 24, 20, true, 0),
            ("unsigned char[6]", "mac", 44, 6, false, 0x8000_0001),
            ("struct point", "at", 50, 12, true, 3),
        ],
    );
    made.user_event("empty", &[]);
    let (formats, gaps) = made.read();
    assert_eq!(gaps, Vec::<String>::new());
    let names: Vec<_> = formats.iter().map(|f| (f.id, &*f.system, &*f.name)).collect();
    assert_eq!(names, [(1, "user_events", "order"), (2, "user_events", "empty")]);
    assert!(formats.iter().all(Format::is_user_event));
    assert_eq!(
        own(&formats[0]),
        [
            ("u32 id", 8, 4, false),
            ("__rel_loc char text[]", 12, 4, true),
            ("__rel_loc u8 bytes[]", 16, 4, true),
            ("__data_loc char[] late", 20, 4, true),
            ("char name[]", 24, 20, true),
            ("unsigned char mac[6]", 44, 6, false),
            ("struct point at", 50, 12, true),
        ]
    );
    assert_eq!(own(&formats[1]), []);
}

/// The structures show whose list it is. One that is of neither kind has no format.
#[test]
fn each_list_is_of_the_event_that_its_structure_points_back_to() {
    let row = |name| [("int", name, 8, 4, true, 0)];
    let mut made = Made::new();
    let [plain, class] = [made.room(), made.room()];
    made.call([plain, class], "sched", "plain", 0);
    made.fields(class + 16, &row("a"));
    let [call, class, metadata] = [made.room(), made.room(), made.room()];
    made.call([call, class], "syscalls", "sys_enter_x", metadata);
    made.fields(metadata + ENTER_FIELDS, &row("b"));
    made.memory.put_u64(metadata + ENTER_EVENT, call);
    made.user_event("c", &row("c"));
    // The data of another event; its own structure would give a list, too.
    let [call, class] = [made.room(), made.room()];
    made.call([call, class], "user_events", "d", metadata);
    let event = made.user_event("e", &row("e"));
    let other = made.room();
    made.memory.put_u64(event + CALL + 16, other);
    made.memory.put_u64(other + 8, FUNCTION);
    let (formats, gaps) = made.read();
    let found: Vec<_> = formats.iter().map(|f| (&*f.name, own(f)[0].0)).collect();
    assert_eq!(found, [("plain", "int a"), ("sys_enter_x", "int b"), ("c", "int c")]);
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    let is_told = |gap: &String| gap.contains("an event's format") && gap.contains("get_fields");
    assert!(gaps.iter().all(is_told), "{gaps:?}");
}

/// A page that is not in the image costs the format of its event.
#[test]
fn a_user_event_that_is_not_whole_is_not_known() {
    let mut made = Made::new();
    made.user_event("whole", &[("int", "a", 8, 4, true, 0)]);
    made.user_event("torn", &[("int", "b", 8, 4, true, 0)]);
    // The type of its field.
    made.memory.drop(made.next);
    let (formats, gaps) = made.read();
    assert_eq!(formats.iter().map(|f| &*f.name).collect::<Vec<_>>(), ["whole"]);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
}
