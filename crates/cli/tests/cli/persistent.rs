//! Persistent ring buffers of ftrace, made of the pages and descriptions of a trace.dat file, which
//! trace-cmd reads too.

use crate::lttng::files;
use crate::support::{Place, Ran, ran, trace_dat};
use lastwords_testkit::form::Form;
use lastwords_testkit::layouts::Layout;
use lastwords_testkit::persistent::{Boot, Cpu, Region, SIZE, region_of};
use lastwords_testkit::text::Text as _;

/// Address of the symbol `do_work`, whose events the file has.
const DO_WORK: u64 = 0xffff_ffff_8100_0000;
/// The address that a region saves of its boot.
const TEXT: u64 = 0xffff_ffff_8000_0000;
/// The address of its data that a region of Linux 6.12 saves too.
const DATA: u64 = TEXT + 0x0120_0000;

/// The bytes of a trace.dat file of version 6.
pub(crate) fn file() -> Vec<u8> {
    std::fs::read(trace_dat("whole-6")).unwrap()
}

/// A region, and the files of the bundle that describes it.
pub(crate) struct Made {
    pub(crate) region: Region,
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

/// Reads a trace.dat file of version 6 from its beginning on (`trace-cmd.dat.v6.5`).
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn number(&mut self, len: usize) -> usize {
        self.take(len).iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    fn sized(&mut self, len: usize) -> &'a [u8] {
        let size = self.number(len);
        self.take(size)
    }

    fn word(&mut self) -> String {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap();
        let word = String::from_utf8(self.take(len).to_vec()).unwrap();
        self.take(1);
        word
    }
}

impl Made {
    /// The pages of the file as a region of a boot whose code lay `moved` bytes above that of the
    /// bundle's boot.
    pub(crate) fn new(file: &[u8], form: Form, moved: u64) -> Self {
        Self::of_layout(file, &Layout::known(form, 8, false), moved)
    }

    /// The same in any layout of little-endian machines whose `long` has 8 bytes.
    pub(crate) fn of_layout(file: &[u8], layout: &Layout, moved: u64) -> Self {
        let mut parts = Parts(file);
        // The magic word, the version, byte order, size of a `long`, size of a page.
        parts.take(10 + 2 + 1 + 1 + 4);
        let mut files = vec![("saved_tgids".to_owned(), Vec::new())];
        assert_eq!(parts.word(), "header_page");
        files.push(("events/header_page".to_owned(), parts.sized(8).to_vec()));
        assert_eq!(parts.word(), "header_event");
        parts.sized(8);
        let mut formats = Vec::new();
        let count = parts.number(4);
        (0..count).for_each(|_| formats.push(("ftrace".to_owned(), parts.sized(8))));
        for _ in 0..parts.number(4) {
            let system = parts.word();
            let count = parts.number(4);
            (0..count).for_each(|_| formats.push((system.clone(), parts.sized(8))));
        }
        for (system, format) in formats {
            let text = String::from_utf8_lossy(format);
            let name =
                text.lines().find_map(|line| line.strip_prefix("name: ")).unwrap().to_owned();
            files.push((format!("events/{system}/{name}/format"), format.to_vec()));
        }
        let at = |address: u64, rest: &str| format!("{:016x} {rest}\n", address - moved);
        let mut kallsyms = at(TEXT, "T rb_meta_init_text_addr")
            + &at(TEXT, "T _text")
            + &at(DATA, "b rb_data_ptr");
        for (address, rest) in
            String::from_utf8_lossy(parts.sized(4)).lines().filter_map(|line| line.split_once(' '))
        {
            kallsyms += &at(u64::from_str_radix(address, 16).unwrap(), rest);
        }
        files.push(("kallsyms".to_owned(), kallsyms.into_bytes()));
        files.push(("printk_formats".to_owned(), parts.sized(4).to_vec()));
        files.push(("saved_cmdlines".to_owned(), parts.sized(8).to_vec()));
        files.push(("uname".to_owned(), b"Linux (none) 6.12.0 #1 SMP x86_64 GNU/Linux\n".to_vec()));
        let cpus = parts.number(4);
        assert_eq!(parts.word(), "options  ");
        while parts.number(2) != 0 {
            parts.sized(4);
        }
        assert_eq!(parts.word(), "flyrecord");
        let pages = |_| {
            let (begin, len) = (parts.number(8), parts.number(8));
            file[begin..begin + len].chunks(SIZE).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let all: Vec<Vec<Vec<u8>>> = (0..cpus).map(pages).collect();
        let count = all.iter().map(Vec::len).max().unwrap() + 2;
        let cpu = |pages: &Vec<Vec<u8>>| {
            let order = (0..count).collect();
            Cpu {
                order,
                head: 1,
                commit: pages.len() - 1,
                pages: pages.iter().cloned().enumerate().collect(),
            }
        };
        let cpus: Vec<Cpu> = all.iter().map(cpu).collect();
        let boot =
            Boot { text: TEXT, clock: 0, modules: vec![(0xffff_ffff_c000_0000, "loop".into())] };
        Self { region: region_of(layout, &boot, &cpus), files }
    }

    /// Has the program pack the bundle.
    pub(crate) fn pack(&self, place: &Place, name: &str) {
        let tree = format!("{name}-tree");
        for (file, bytes) in &self.files {
            let path = place.at(&tree).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        place.ok(&["bundle", "pack", &tree, "-o", name]);
    }
}

fn made(place: &Place, form: Form, moved: u64) -> Made {
    let made = Made::new(&file(), form, moved);
    std::fs::write(place.at("region"), &made.region.bytes).unwrap();
    made.pack(place, "bundle");
    made
}

/// The lines of events.
pub(crate) fn events(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.contains("LOST")).collect()
}

#[test]
fn symbols_are_those_of_the_boot_that_wrote() {
    for form in [Form::PerCpu, Form::Common] {
        let [same, moved] = [0, 0x0340_0000].map(|moved| {
            let place = Place::new();
            made(&place, form, moved);
            place.ok(&["report", "region", "--bundle", "bundle"])
        });
        let words = |text: &str| -> Vec<String> {
            let behind_task = |line: &str| line.split_once(" [").map(|(_, rest)| rest.to_owned());
            events(text).into_iter().filter_map(behind_task).collect()
        };
        assert!(words(&same).len() > 400 && same.contains("do_work"), "{same}");
        assert_eq!(
            words(&same),
            words(&moved),
            "names of tasks are unknown after another boot, and nothing else is"
        );
    }
}

/// A region of 6.12 in which the next boot went on recording still has the address of the boot
/// before.
#[test]
fn a_later_boot_is_not_named_by_the_address_of_an_earlier_one() {
    const APART: u64 = 0x1340_0000;
    let place = Place::new();
    let right = made(&place, Form::PerCpu, 0);
    let wanted = place.ok(&["report", "region", "--bundle", "bundle"]);
    let mut bytes = right.region.bytes;
    // The metadata of a CPU have the addresses of code and data; the events keep theirs.
    for address in [TEXT, DATA] {
        let has = |at: &usize| bytes[*at..*at + 8] == address.to_le_bytes();
        let places: Vec<usize> = (0..bytes.len() - 8).step_by(8).filter(has).collect();
        let at = *places.first().unwrap();
        assert!(at < 4096);
        for place in places.into_iter().filter(|place| place % 4096 == at) {
            bytes[place..place + 8].copy_from_slice(&(address + APART).to_le_bytes());
        }
    }
    std::fs::write(place.at("region"), bytes).unwrap();
    let with_end = |moved: u64| {
        move |kallsyms: String| kallsyms + &format!("{:016x} B _end\n", TEXT + 0x0200_0000 - moved)
    };
    repack(&place, "kallsyms", "own", &with_end(0));
    let own = place.run(&["report", "region", "--bundle", "own"]);
    own.says("named as those of the boot of");
    assert_eq!(events(&own.out), events(&wanted));
    let moved = Made::new(&file(), Form::PerCpu, 0x0340_0000);
    moved.pack(&place, "bundle-of-another-boot");
    std::fs::rename(place.at("bundle-of-another-boot-tree"), place.at("other-tree")).unwrap();
    let kallsyms = place.at("other-tree").join("kallsyms");
    let text = std::fs::read_to_string(&kallsyms).unwrap();
    std::fs::write(&kallsyms, with_end(0x0340_0000)(text)).unwrap();
    place.ok(&["bundle", "pack", "other-tree", "-o", "other"]);
    let other = place.run(&["report", "region", "--bundle", "other"]);
    other.says("addresses have no names");
    assert_eq!(events(&other.out).len(), events(&wanted).len());
    assert!(wanted.contains("do_work") && !other.out.contains("do_work"), "{}", other.out);
}

/// An event without a format shows its bytes, and an address in a module that is not known shows
/// the module's base.
#[test]
fn what_nothing_describes_is_shown_raw() {
    let place = Place::new();
    let mut made = made(&place, Form::Common, 0);
    let bare = place.run(&["report", "region"]);
    let with = place.ok(&["report", "region", "--bundle", "bundle"]);
    bare.has_status(0);
    assert_eq!(events(&bare.out).len(), events(&with).len());
    bare.prints(": Unknown type 5: ").says("--bundle FILE").does_not_print("do_work");
    // Addresses in `do_work` and the bytes behind it, which the module takes.
    let of = |address: u64| address.to_le_bytes()[2..].to_vec();
    for at in 0..made.region.bytes.len() - 6 {
        if made.region.bytes[at..at + 6] == of(DO_WORK) {
            made.region.bytes[at..at + 6].copy_from_slice(&of(0xffff_ffff_c000_0000));
        }
    }
    std::fs::write(place.at("region"), &made.region.bytes).unwrap();
    let ran = place.run(&["report", "region", "--bundle", "bundle"]);
    let is_from_base = |line: &&str| line.contains(": 0xffffffffc0000000+0x");
    let lines = events(&ran.out);
    assert!(lines.iter().filter(|line| is_from_base(line)).count() > 100, "{lines:?}");
    ran.says("module loop at 0xffffffffc0000000");
}

#[test]
fn a_damaged_sub_buffer_is_a_loss_with_a_reason() {
    let place = Place::new();
    let mut made = made(&place, Form::PerCpu, 0);
    let whole = place.ok(&["report", "region", "--bundle", "bundle"]);
    let second = made.region.places[0].1 + SIZE;
    made.region.bytes[second + 8..second + 12].fill(0xff);
    std::fs::write(place.at("region"), &made.region.bytes).unwrap();
    let ran = place.run(&["report", "--strict", "region", "--bundle", "bundle"]);
    ran.has_status(3);
    let all = events(&whole);
    assert!(!events(&ran.out).is_empty() && events(&ran.out).iter().all(|line| all.contains(line)));
    let range = format!("offsets {:#x} to {:#x} of the region", second + 16, second + SIZE);
    ran.says(&range);
    let recover = &["recover", "--strict", "region", "-o", "out"][..];
    for (status, args) in [
        (0, &["inspect", "--verbose", "region"][..]),
        (0, &["inspect", "--json", "region"]),
        (3, recover),
    ] {
        let ran = place.run(&[args, &["--bundle", "bundle"]].concat());
        ran.has_status(status);
        assert!((ran.out + &ran.err).contains(&range), "{args:?}");
    }
}

#[test]
fn a_region_in_raw_memory_is_found_without_an_address() {
    let place = Place::new();
    let made = made(&place, Form::PerCpu, 0);
    let expected = place.ok(&["report", "region", "--bundle", "bundle"]);
    let memory = [&vec![0; 5 * SIZE][..], &made.region.bytes, &vec![0xa5; 3 * SIZE]].concat();
    std::fs::write(place.at("memory"), memory).unwrap();
    let ran = place.run(&["report", "memory", "--raw", "--bundle", "bundle"]);
    ran.has_status(0);
    assert_eq!(events(&ran.out), events(&expected));
    let args = ["memory", "--raw", "--carve", "--bundle", "bundle", "--to", "text", "-o", "carved"];
    place.ok(&[&["recover"], &args[..]].concat());
    let [file] = &files(&place.at("carved"))[..] else { panic!("one file is carved") };
    assert_eq!(events(&std::fs::read_to_string(file).unwrap()), events(&expected));
    place.ok(&["inspect", "memory", "--raw"]).has("persistent@0x5000");
}

/// One of the two words that tell the layout is damaged, or all metadata of CPU 0 are gone.
#[test]
fn a_damaged_beginning_costs_no_event() {
    for form in [Form::PerCpu, Form::Common] {
        let place = Place::new();
        let made = made(&place, form, 0);
        let expected = place.ok(&["report", "region", "--bundle", "bundle"]);
        for damage in [0..4, 4..8, 0..SIZE] {
            let mut bytes = made.region.bytes.clone();
            bytes[damage.clone()].fill(0xa5);
            std::fs::write(place.at("region"), &bytes).unwrap();
            let ran = place.run(&["report", "region", "--bundle", "bundle"]);
            assert_eq!(ran.status, 0, "{form:?}, {damage:?}: {}", ran.err);
            let found = events(&ran.out);
            assert_eq!(found, events(&expected), "{form:?}, {damage:?}: {}", ran.err);
            assert!(
                ran.err.contains("offset 0") || ran.err.contains("offset 4"),
                "{form:?}, {damage:?}: {}",
                ran.err
            );
        }
    }
}

/// Rewrites the file of a bundle's tree, and packs the tree again.
fn repack(place: &Place, file: &str, name: &str, change: &dyn Fn(String) -> String) {
    let path = place.at("bundle-tree").join(file);
    let before = std::fs::read(&path).unwrap_or_default();
    std::fs::write(&path, change(String::from_utf8_lossy(&before).into_owned())).unwrap();
    place.ok(&["bundle", "pack", "bundle-tree", "-o", name]);
    std::fs::write(path, before).unwrap();
}

/// Moves the address of the data in kallsyms, as in a kernel of another build.
fn of_another_build(kallsyms: String) -> String {
    let data = format!("{DATA:016x} b");
    kallsyms.has(&data);
    kallsyms.replace(&data, &format!("{:016x} b", DATA + 0x40))
}

#[test]
fn a_bundle_of_another_build_is_told_and_not_preferred() {
    let place = Place::new();
    made(&place, Form::PerCpu, 0);
    let expected = place.ok(&["report", "region", "--bundle", "bundle"]);
    repack(&place, "kallsyms", "other", &of_another_build);
    let ran = place.run(&["report", "region", "--bundle", "other"]);
    ran.has_status(0).says("other is of another build than");
    let both = place.run(&["report", "region", "--bundle", "other", "--bundle", "bundle"]);
    both.has_status(0).says("other is not used: it is of another build");
    assert_eq!(both.out, expected);
}

/// A region of a newer kernel does not tell its build, so two builds cannot both be given.
#[test]
fn two_builds_are_refused_where_the_region_does_not_tell() {
    let place = Place::new();
    made(&place, Form::Common, 0);
    for (name, id) in [("one", "\x01"), ("two", "\x02"), ("again", "\x01")] {
        let notes = format!("\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0{id}{id}{id}{id}");
        repack(&place, "notes", name, &|_| notes.clone());
    }
    let ran = place.run(&["report", "region", "--bundle", "one", "--bundle", "two"]);
    ran.has_status(1).says("one is of build 01010101 and two of build 02020202");
    place.ok(&["report", "region", "--bundle", "one", "--bundle", "again"]);
}

/// Reports the region, of which the unit saved this bundle.
pub(crate) fn report_with_saved(place: &Place, bundle: &str) -> Ran {
    std::fs::create_dir_all(place.at("state/bundles")).unwrap();
    std::fs::copy(place.at(bundle), place.at("state/bundles/saved.bundle")).unwrap();
    let mut command = place.command();
    command.env("LASTWORDS_STATE", place.at("state")).args(["report", "region"]);
    ran(command.output().unwrap())
}

/// Without a source, a bundle that the unit saved is used if its addresses prove that it is of the
/// same build.
#[test]
fn a_saved_bundle_is_used_if_it_is_proven_to_be_right() {
    for form in [Form::PerCpu, Form::Common] {
        let place = Place::new();
        made(&place, form, 0);
        let expected = place.ok(&["report", "region", "--bundle", "bundle"]);
        let saved = |name: &str| report_with_saved(&place, name);
        // In the newer form, only the addresses of modules prove it.
        repack(&place, "modules", "with-modules", &|_| {
            "loop 4096 0 - Live 0xffffffffc0000000\n".into()
        });
        let used = saved("with-modules");
        assert_eq!(used.out, expected, "{form:?}: {}", used.err);
        used.says("saved.bundle, because the region saves");
        repack(&place, "kallsyms", "other", &of_another_build);
        saved("other").prints(": Unknown type 5: ").says("--bundle FILE");
    }
}

/// A format that the events do not fit is another event's, and is not used.
#[test]
fn a_format_of_other_lengths_is_not_used() {
    let place = Place::new();
    let made = made(&place, Form::Common, 0);
    let format = made
        .files
        .iter()
        .find(|(name, _)| name.ends_with("sched/wake/format"))
        .map(|(name, _)| name.clone());
    let grown = |text: String| {
        let number = |word: &str| -> usize {
            let (_, rest) = text.rsplit_once(word).expect("a field");
            rest.split(';').next().unwrap().parse().expect("a number")
        };
        let (begin, size) = (number("offset:") + number("size:"), 256);
        let field = format!(
            "\tfield:char more[{size}];\toffset:{begin};\tsize:{size};\tsigned:0;\n\nprint fmt"
        );
        text.replace("\nprint fmt", &field)
    };
    repack(&place, &format.unwrap(), "grown", &grown);
    let before = place.ok(&["report", "region", "--bundle", "bundle"]);
    let ran = place.run(&["report", "region", "--bundle", "grown"]);
    assert!(before.contains(": wake: ") && !ran.out.contains(": wake: "), "{}", ran.out);
    ran.says("other lengths than sched:wake");
    assert_eq!(events(&ran.out).len(), events(&before).len());
}

#[test]
fn what_is_no_bundle_is_refused() {
    let place = Place::new();
    made(&place, Form::PerCpu, 0);
    std::fs::write(place.at("text"), "no bundle").unwrap();
    let ran = place.run(&["report", "region", "--bundle", "text"]);
    ran.has_status(1).says("text: no bundle of lastwords");
    let ran = place.run(&["bundle", "pack", "sessions", "-o", "new"]);
    assert!(ran.status == 1 && !place.at("new").exists(), "{}", ran.err);
    // A file that is there is kept.
    place.run(&["bundle", "pack", "bundle-tree", "-o", "bundle"]).has_status(1).says("bundle");
}

#[test]
fn the_counter_of_a_cpu_counts_no_nanoseconds() {
    let place = Place::new();
    let mut made = made(&place, Form::Common, 0);
    let bytes = &mut made.region.bytes;
    let text = bytes
        .windows(8)
        .position(|part| part == TEXT.to_le_bytes())
        .expect("the address of the code");
    // The number of the clock is before it.
    bytes[text - 8..text - 4].copy_from_slice(&9u32.to_le_bytes());
    std::fs::write(place.at("region"), &made.region.bytes).unwrap();
    place
        .run(&["inspect", "region", "--bundle", "bundle"])
        .prints("clock x86-tsc")
        .prints(" in ticks of the clock (");
}
