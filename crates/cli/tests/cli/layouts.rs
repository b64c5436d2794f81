//! Persistent ring buffers of layouts that the program does not know: the types in a bundle tell
//! where everything is.

use crate::persistent::{Made, events, file, report_with_saved};
use crate::support::{Place, Ran};
use lastwords_testkit::form::Form;
use lastwords_testkit::layouts::{Layout, Structure};
use lastwords_testkit::persistent::SIZE;

/// A structure of a layout.
fn structure<'a>(layout: &'a mut Layout, name: &str) -> &'a mut Structure {
    layout.structures.iter_mut().find(|structure| structure.name == name).unwrap()
}

/// A layout that no kernel has.
fn invented(form: Form, seed: u64) -> Layout {
    let mut state = seed;
    let mut choose = |end: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    Layout::invented(form, 8, false, &mut choose)
}

/// Writes a region, and its bundle with the types of a layout.
fn write(place: &Place, layout: &Layout, types: Option<&Layout>) -> Made {
    let mut made = Made::of_layout(&file(), layout, 0);
    std::fs::write(place.at("region"), &made.region.bytes).unwrap();
    made.files.extend(types.map(|layout| ("btf/vmlinux".to_owned(), layout.btf())));
    made.pack(place, "bundle");
    made
}

fn report(place: &Place) -> Ran {
    place.run(&["report", "region", "--bundle", "bundle"])
}

/// Returns the text of the same events in the layout that a form has in known kernels.
fn expected(form: Form) -> String {
    let place = Place::new();
    let known = Layout::known(form, 8, false);
    write(&place, &known, Some(&known));
    let ran = report(&place);
    ran.has_status(0).prints("do_work").does_not_say("not used");
    assert!(events(&ran.out).len() > 400, "{}", ran.out);
    ran.out
}

#[test]
fn the_types_of_a_bundle_tell_the_layout() {
    for form in [Form::PerCpu, Form::Common] {
        let expected = expected(form);
        for seed in 0..12 {
            let (place, layout) = (Place::new(), invented(form, seed));
            let made = write(&place, &layout, Some(&layout));
            let ran = report(&place);
            assert!(
                ran.status == 0 && ran.out == expected,
                "{form:?} {seed}: {}\n{layout:?}",
                ran.err
            );
            let memory =
                [&vec![0; 5 * SIZE][..], &made.region.bytes, &vec![0xa5; 3 * SIZE]].concat();
            std::fs::write(place.at("memory"), memory).unwrap();
            let out = place.ok(&["report", "memory", "--raw", "--bundle", "bundle"]);
            assert_eq!(events(&out), events(&expected), "{form:?} {seed}: {layout:?}");
        }
    }
}

/// The layout of a newer kernel: the magic word is where it was, and the sizes are others.
#[test]
fn without_the_right_types_it_is_said_what_to_give() {
    let place = Place::new();
    let newer = Layout::newer();
    write(&place, &newer, Some(&newer));
    assert_eq!(report(&place).out, expected(Form::Common));
    let bare = place.run(&["report", "region"]);
    bare.has_status(1).says("; give the kernel that wrote it").says("--bundle FILE");
    bare.prints_nothing();
    let memory = [vec![0; SIZE], std::fs::read(place.at("region")).unwrap()].concat();
    std::fs::write(place.at("memory"), memory).unwrap();
    let found = place.run(&["report", "memory", "--raw"]);
    found.has_status(1).says("the region at 0x1000").says("--bundle FILE");
    // No types, those of another kernel, and types that lack what a layout needs.
    let (old, mut lacking) = (Layout::known(Form::PerCpu, 8, false), newer.clone());
    let head = structure(&mut lacking, "ring_buffer_cpu_meta");
    head.members.retain(|member| member.name != "head_buffer");
    for types in [None, Some(&old), Some(&lacking)] {
        let place = Place::new();
        write(&place, &newer, types);
        let ran = report(&place);
        ran.has_status(1).prints_nothing().says("--bundle FILE");
        ran.says("; give another description of the kernel that wrote it");
        let lacks = "struct ring_buffer_cpu_meta has no member head_buffer";
        assert_eq!(
            ran.err.contains(lacks),
            types.is_some_and(|types| types.structures.len() == newer.structures.len())
        );
    }
}

/// Types of another layout than that of the region, which its own words tell: they are not used,
/// and nor are the formats.
#[test]
fn a_bundle_of_another_layout_is_not_used() {
    for form in [Form::PerCpu, Form::Common] {
        let (place, expected) = (Place::new(), expected(form));
        write(&place, &Layout::known(form, 8, false), Some(&invented(form, 3)));
        let ran = report(&place);
        ran.has_status(0).says(
            "bundle is not used: its kernel writes persistent ring buffers of another layout",
        );
        assert_eq!(events(&ran.out).len(), events(&expected).len());
        ran.does_not_print("do_work");
    }
}

/// The types of a saved bundle tell the layout if the region proves that it is of the same build.
#[test]
fn a_saved_bundle_tells_the_layout_if_it_is_proven_to_be_right() {
    let (place, mut layout) = (Place::new(), Layout::known(Form::PerCpu, 8, false));
    // A member in front of the table.
    let own = structure(&mut layout, "ring_buffer_meta");
    own.members.iter_mut().find(|member| member.name == "buffers").unwrap().at += 8;
    own.size += 8;
    let mut made = write(&place, &layout, Some(&layout));
    let saved = |name: &str| report_with_saved(&place, name);
    let used = saved("bundle");
    assert_eq!(used.out, expected(Form::PerCpu), "{}", used.err);
    for (name, file) in &mut made.files {
        if name == "kallsyms" {
            let text =
                String::from_utf8_lossy(file).replace("0000 b rb_data_ptr", "0040 b rb_data_ptr");
            *file = text.into_bytes();
        }
    }
    made.pack(&place, "other");
    saved("other").has_status(1).prints_nothing().says("--bundle FILE");
}
