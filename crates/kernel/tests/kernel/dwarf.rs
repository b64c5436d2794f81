//! Debug information as the compiler writes it, and places of members as the compiled program
//! prints them.
#![forbid(unsafe_code)]

use lastwords_bytes::{Budget, Limits};
use lastwords_kernel::Sources;
use lastwords_kernel::btf::{Btf, MemberKind, Types, of_module};
use lastwords_kernel::vmcoreinfo::VmcoreInfo;
use lastwords_testkit::random::Random;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
struct later;
enum colour { RED = 1, GREEN = -2, FAR = 300 };
enum huge { HUGE = 1L << 40 };
enum { ALONE = 7 };
typedef struct { int counter; } atomic_t;
struct inner { char name[16]; union { long address; struct { unsigned level : 3; unsigned flags : 5; }; }; };
struct outer {
    struct later *next;
    const volatile struct inner inners[3];
    atomic_t count;
    enum colour colour;
    _Bool ready : 1;
    unsigned long long wide : 40;
    int signed_bits : 5;
    short grid[2][3];
    void (*call)(int);
    double ratio;
    char tail[];
};
struct later { struct outer *back; struct later *self; long long last; };
int _stext(void) { struct local { int x; } here = { 1 }; return here.x; }
enum huge kept;
struct outer *used;
#define AT(structure, member) printf("%s.%s %zu %zu\n", #structure, #member, \
    offsetof(struct structure, member), sizeof(((struct structure *)0)->member))
#define BITS(structure, member) do { union { struct structure it; unsigned char raw[sizeof(struct structure)]; } u = { 0 }; \
    u.it.member = -1; int first = -1, bits = 0; \
    for (int i = 0; i < (int)sizeof u.raw * 8; i++) if (u.raw[i / 8] >> i % 8 & 1) { if (first < 0) first = i; bits++; } \
    printf("%s.%s: %d %d\n", #structure, #member, first, bits); } while (0)
int main(void) {
    AT(outer, next); AT(outer, inners[2].address); AT(outer, count.counter); AT(outer, colour); AT(outer, grid);
    AT(outer, call); AT(outer, ratio); AT(later, back); AT(later, last); AT(inner, name);
    BITS(outer, ready); BITS(outer, wide); BITS(outer, signed_bits); BITS(inner, level); BITS(inner, flags);
    return kept != 0;
}
"#;

/// A folder, the program and its relocatable file.
struct Compiled {
    _folder: tempfile::TempDir,
    program: PathBuf,
    object: PathBuf,
}

fn compile(options: &[&str]) -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("a.c"), PROGRAM).unwrap();
    let run = |more: &[&str], to: &Path| {
        let mut command = Command::new("cc");
        command.args(["-w", "-fno-eliminate-unused-debug-types"]).args(options).args(more);
        let output = command.arg("-o").arg(to).arg(at("a.c")).output().expect("a C compiler: cc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&[], &at("program"));
    run(&["-c"], &at("object"));
    Compiled { program: at("program"), object: at("object"), _folder: folder }
}

/// Returns the output of the program: paths, each with its numbers.
fn truth(program: &Path) -> BTreeMap<String, (u64, u64)> {
    let text = String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap();
    let row = |line: &str| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap().to_string();
        (next(), (next().parse().unwrap(), next().parse().unwrap()))
    };
    text.lines().map(row).collect()
}

fn of_vmlinux(bytes: Vec<u8>) -> Result<Types, lastwords_bytes::Error> {
    let mut sources = Sources::default();
    sources.vmlinux(Cursor::new(bytes), &VmcoreInfo::default(), &Budget::default())?;
    assert!(sources.symbols.unwrap().find("_stext").is_some());
    Ok(Types::new(Arc::new(Btf::parse(sources.btf.unwrap_or_default(), None, &Budget::default())?)))
}

fn empty_kernel() -> Types {
    let mut blob = vec![0x9f, 0xeb, 1, 0];
    [24u32, 0, 0, 0, 1].iter().for_each(|word| blob.extend(word.to_le_bytes()));
    blob.push(0);
    Types::new(Arc::new(Btf::parse(blob, None, &Budget::default()).unwrap()))
}

fn check(types: &Types, truth: &BTreeMap<String, (u64, u64)>) {
    for (path, (first, second)) in truth {
        let (structure, member) = path.split_once('.').unwrap();
        match member.strip_suffix(':') {
            Some(member) => {
                let found = types.member(structure, member).unwrap();
                let (bit, bits) = found.bits.unwrap();
                assert_eq!(
                    (found.offset * 8 + u64::from(bit), u64::from(bits)),
                    (*first, *second),
                    "{path}"
                );
            }
            None => {
                let found = types.member(structure, member).unwrap();
                assert_eq!((found.offset, found.size), (*first, *second), "{path}");
            }
        }
    }
    let member = |path: &str| types.member("outer", path).unwrap();
    // An announced structure is found by its name, whichever way it is referred to.
    let next = types.target(member("next").type_id).unwrap();
    assert_eq!((types.name(next).as_str(), types.size(next)), ("later", 24));
    assert_eq!(types.member_of(next, "self").unwrap().kind, MemberKind::Pointer);
    assert_eq!(member("tail").kind, MemberKind::Array { count: 0, element_size: 1 });
    assert_eq!(member("grid").kind, MemberKind::Array { count: 6, element_size: 2 });
    assert_eq!(member("count.counter").kind, MemberKind::Number { signed: true });
    assert_eq!(types.enum_value("GREEN"), Some(-2));
    assert_eq!(types.enum_value("FAR"), Some(300));
    // Most of the kernel's flags are of enumerations without a name.
    assert_eq!(types.enum_value("ALONE"), Some(7));
    assert_eq!(types.enum_value("HUGE"), Some(1 << 40));
    assert_eq!(types.size_of("atomic_t").unwrap(), 4);
}

#[test]
fn members_lie_where_the_compiler_puts_them() {
    // The third standard counts bit fields from above; units of the fifth may have texts by their
    // index.
    for options in [
        &["-gdwarf-5"][..],
        &["-gdwarf-4"],
        &["-gdwarf-3", "-gstrict-dwarf"],
        &["-gdwarf-5", "-gdwarf64"],
    ] {
        let compiled = compile(options);
        let truth = truth(&compiled.program);
        assert_eq!(truth.len(), 15, "{options:?}");
        check(&of_vmlinux(std::fs::read(&compiled.program).unwrap()).unwrap(), &truth);
        let object = File::open(&compiled.object).unwrap();
        check(&of_module("object", object, &empty_kernel(), &Budget::default()).unwrap(), &truth);
    }
}

#[test]
fn a_file_without_types_says_so() {
    let compiled = compile(&["-g0"]);
    assert!(of_vmlinux(std::fs::read(&compiled.program).unwrap()).is_err());
    let object = File::open(&compiled.object).unwrap();
    let error = of_module("object", object, &empty_kernel(), &Budget::default()).unwrap_err();
    assert!(error.to_string().contains(".debug_info"), "{error}");
    // Compressed sections are named, with what mends them.
    let compiled = compile(&["-g", "-gz=zlib"]);
    let error = of_vmlinux(std::fs::read(&compiled.program).unwrap()).unwrap_err();
    assert!(error.to_string().contains("--decompress-debug-sections"), "{error}");
}

#[test]
fn cut_and_damaged_files_end_within_the_budget() {
    let whole = std::fs::read(compile(&["-gdwarf-5"]).program).unwrap();
    let budget = || Budget::new(Limits { bytes: 64 << 20, steps: 1 << 20, ..Limits::default() });
    let read = |bytes: &[u8]| {
        let mut sources = Sources::default();
        let _ = sources.vmlinux(Cursor::new(bytes), &VmcoreInfo::default(), &budget());
    };
    (0..whole.len()).step_by(97).for_each(|len| read(&whole[..len]));
    let mut random = Random(1);
    for _ in 0..4000 {
        let mut bytes = whole.clone();
        for _ in 0..8 {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.bits() as u8;
        }
        read(&bytes);
    }
}
