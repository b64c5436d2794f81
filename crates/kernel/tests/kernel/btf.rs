//! BTF by a writer that shares nothing with the reader.

use lastwords_bytes::{Budget, Limits};
use lastwords_kernel::btf::{Btf, MemberKind, Types};
use lastwords_testkit::btf::Writer;
use proptest::prelude::*;
use std::sync::Arc;

fn sample() -> Writer {
    let mut w = Writer::default();
    let int = w.int("int", 4, true);
    let long = w.int("long unsigned int", 8, false);
    let char = w.int("char", 1, false);
    let name = w.array(char, 16);
    let bits = w.composite(4, "", 4, &[("level", int, 3 << 24 | 5), ("flags", int, 5 << 24)]);
    let either = w.composite(5, "", 8, &[("address", long, 0), ("", bits, 0)]);
    let inner = w.structure("inner", 24, &[("name", name, 0), ("", either, 16)]);
    let forward = w.forward("outer");
    let link = w.pointer(forward);
    let volatile = w.kind(9, 0, "", inner, &[]);
    let typedef = w.typedef("inner_t", volatile);
    let inners = w.array(typedef, 3);
    let outer =
        w.structure("outer", 88, &[("next", link, 0), ("inners", inners, 8), ("count", int, 80)]);
    w.pointer(outer);
    w.enumeration("colour", &[("RED", 1), ("GREEN", -2)]);
    w.enumeration64("large", &[("HUGE", 1 << 40)]);
    // Another structure of a name that is taken.
    w.structure("outer", 8, &[("other", long, 0)]);
    w.kind(17, 0, "tag", outer, &[0xffff_ffff]);
    w.kind(16, 0, "double", 8, &[]);
    w
}

fn types(w: &Writer) -> Types {
    Types::new(Arc::new(Btf::parse(w.finish(&[]), None, &Budget::default()).unwrap()))
}

#[test]
fn members_are_found_through_what_has_no_name() {
    let types = types(&sample());
    let level = types.member("outer", "inners[2].level").unwrap();
    assert_eq!((level.offset, level.bits), (8 + 48 + 16, Some((5, 3))));
    assert_eq!(types.member("inner_t", "address").unwrap().offset, 16);
    assert_eq!(
        types.member("outer", "inners").unwrap().kind,
        MemberKind::Array { count: 3, element_size: 24 }
    );
    assert_eq!(types.member("outer", "count").unwrap().kind, MemberKind::Number { signed: true });
    assert_eq!((types.size_of("inner_t").unwrap(), types.size_of("outer").unwrap()), (24, 88));
    assert_eq!(types.members(types.id("inner").unwrap()), ["name", "address", "level", "flags"]);
    // The second structure of the name has it.
    assert_eq!(types.member("outer", "other").unwrap().offset, 0);
    assert!(types.has_member("outer", "next") && !types.has_member("outer", "inners[3].name"));
}

#[test]
fn a_pointer_to_what_is_only_announced_leads_to_the_whole() {
    let types = types(&sample());
    let next = types.member("outer", "next").unwrap();
    assert_eq!((next.kind, next.size), (MemberKind::Pointer, 8));
    let target = types.target(next.type_id).unwrap();
    assert_eq!((types.name(target).as_str(), types.size(target)), ("outer", 88));
}

#[test]
fn enumerators_have_their_signs_and_sizes() {
    let types = types(&sample());
    let values = ["RED", "GREEN", "HUGE", "NONE"].map(|name| types.enum_value(name));
    assert_eq!(values, [Some(1), Some(-2), Some(1 << 40), None]);
    assert_eq!(types.enumeration("colour"), [("RED".into(), 1), ("GREEN".into(), -2)]);
}

/// A name that enumerations give different values is not known; a module's own are found if the
/// kernel has none.
#[test]
fn an_enumerator_of_several_values_has_none() {
    let mut base = sample();
    base.enumeration("shade", &[("RED", 1), ("DARK", 3)]);
    base.enumeration("tone", &[("DARK", 4)]);
    let mut module = Writer::split(&base);
    module.enumeration("mine", &[("OWN", 5), ("DARK", 6), ("GREEN", 7), ("TWICE", 8)]);
    module.enumeration("other", &[("TWICE", 9)]);
    let kernel = Arc::new(Btf::parse(base.finish(&[]), None, &Budget::default()).unwrap());
    let of = |btf: Btf| {
        let types = Types::new(Arc::new(btf));
        ["RED", "DARK", "OWN", "GREEN", "TWICE"].map(|name| types.enum_value(name))
    };
    let split =
        Btf::parse(module.finish(&[]), Some(Arc::clone(&kernel)), &Budget::default()).unwrap();
    assert_eq!(of(split), [Some(1), None, Some(5), Some(-2), None]);
    let whole = Btf::parse(base.finish(&[]), None, &Budget::default()).unwrap();
    assert_eq!(of(whole), [Some(1), None, None, Some(-2), None]);
}

#[test]
fn errors_name_the_structure_and_the_member() {
    let types = types(&sample());
    assert_eq!(
        types.member("nobody", "x").unwrap_err().to_string(),
        "the kernel's types have no nobody"
    );
    assert_eq!(types.member("outer", "x").unwrap_err().to_string(), "struct outer has no member x");
    let nested = types.member("outer", "inners[0].x").unwrap_err().to_string();
    assert_eq!(nested, "struct outer has no member inners[0].x: no x");
}

#[test]
fn a_modules_blob_goes_on_where_the_kernels_ends() {
    let base = sample();
    let mut module = Writer::split(&base);
    let pointer = module.pointer(7);
    module.structure("mine", 16, &[("kernels", pointer, 0), ("own", 2, 8)]);
    let kernel = Arc::new(Btf::parse(base.finish(&[]), None, &Budget::default()).unwrap());
    let btf = Btf::parse(module.finish(&[]), Some(kernel), &Budget::default()).unwrap();
    let types = Types::new(Arc::new(btf));
    let target = types.target(types.member("mine", "kernels").unwrap().type_id).unwrap();
    assert_eq!(types.name(target), "inner");
    assert_eq!(types.member("outer", "count").unwrap().offset, 80);
    assert_eq!(types.enum_value("RED"), Some(1));
}

#[test]
fn a_kind_that_the_blob_itself_tells_the_length_of_is_passed_over() {
    let mut w = sample();
    w.kind(20, 2, "news", 0, &[1, 2, 3]);
    w.structure("behind", 4, &[("x", 1, 0)]);
    let mut layout = vec![(0, 0); 20];
    layout.push((4, 4));
    let blob = w.finish(&layout);
    let types = Types::new(Arc::new(Btf::parse(blob, None, &Budget::default()).unwrap()));
    assert!(types.has_member("behind", "x"));
    let error = Btf::parse(w.finish(&[]), None, &Budget::default()).unwrap_err();
    assert!(error.to_string().contains("found 0x14, expected a known kind"), "{error}");
}

#[test]
fn a_structure_that_holds_itself_ends() {
    let mut w = Writer::default();
    // Number 1 holds itself three times, without a name; number 2 is a definition of itself.
    w.composite(4, "circle", 8, &[("", 1, 0), ("", 1, 0), ("", 1, 0)]);
    w.typedef("snake", 2);
    w.array(3, 7);
    let types = types(&w);
    assert!(!types.has_member("circle", "x"));
    assert!(types.members(types.id("circle").unwrap()).is_empty());
    assert_eq!(types.size_of("snake").unwrap_or_default(), 0);
}

#[test]
fn strings_without_an_end_cost_no_more_than_the_blob() {
    let mut w = Writer::default();
    let text = "x".repeat(1 << 20);
    w.typedef(&text, 1);
    let count = 80_000;
    for _ in 0..count {
        w.typedef("", 1);
    }
    let mut blob = w.finish(&[]);
    // Each type has the name that fills the string section, and no NUL ends it.
    (0..=count).for_each(|n| blob[24 + 12 * n..28 + 12 * n].copy_from_slice(&1u32.to_le_bytes()));
    blob.pop();
    let len = blob.len() - 24 - 12 * (count + 1);
    blob[20..24].copy_from_slice(&(len as u32).to_le_bytes());
    let begun = std::time::Instant::now();
    let budget = Budget::for_input(blob.len() as u64);
    let types = Btf::parse(blob, None, &budget).map(|btf| Types::new(Arc::new(btf)));
    if let Ok(types) = types {
        assert!(types.id("nothing").is_err());
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic_or_hang(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12), cut in any::<prop::sample::Index>(), is_cut in any::<bool>()) {
        let mut blob = sample().finish(&[]);
        for (at, value) in changes {
            let at = at.index(blob.len());
            blob[at] = value;
        }
        if is_cut {
            blob.truncate(cut.index(blob.len()));
        }
        let budget = Budget::new(Limits { bytes: 1 << 20, steps: 1 << 12, ..Limits::default() });
        if let Ok(btf) = Btf::parse(blob, None, &budget) {
            let types = Types::new(Arc::new(btf));
            for path in ["", "next", "inners[2].level", "count", "other", "inners[1].name[3]"] {
                if let Ok(member) = types.member("outer", path) {
                    let _ = types.target(member.type_id);
                    let _ = types.members(member.type_id);
                }
            }
            let _ = types.enum_value("HUGE");
            let _ = types.enumeration("colour");
        }
    }
}
