//! The fuzz targets that read kernels: their memory, their types, and what their tracer wrote.

use std::io::sink;
use std::sync::Arc;

use crate::image::Bytes;
use crate::memory::Regions;
use crate::scratch::file_of;
use crate::script::Input;
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_ctf::{Version, read};
use lastwords_ftrace::ctf::{Form, Remarks, trace};
use lastwords_ftrace::{
    Choice, HeaderPage, NoSymbols, Recording, Symbols, Tracing, dat, format_file, page, print,
    text as ftrace_text,
};
use lastwords_image::vmcore::{Machine, open_physical};
use lastwords_image::{Image, unwatched};
use lastwords_kernel::btf::{Btf, Types};
use lastwords_kernel::{
    Kernel, Mask, Sources, find, memory::Memory, virtual_memory::VirtualMemory,
    vmcoreinfo::VmcoreInfo,
};
use lastwords_render::{json, perfetto};

/// A dump of physical memory, of any container: the corpus has one of each.
pub fn vmcore(data: &[u8]) {
    let scratch = file_of(data);
    let budget = Budget::default();
    let Ok(Some(physical)) = open_physical(scratch.path(), &budget, &unwatched) else { return };
    let (image, mut buf) = (&physical.image, [0u8; 700]);
    let ranges = image.ranges();
    assert!(ranges.windows(2).all(|w| w[0].end() <= w[1].address), "ranges overlap");
    for range in ranges.iter().take(64) {
        for address in [range.address, range.end().saturating_sub(300), range.end()] {
            let _ = image.read(address, &mut buf);
            assert!(image.next_data(address, u64::MAX) >= address, "back from {address:#x}");
        }
    }
    for address in [0, u64::MAX - 300, u64::MAX >> 1] {
        let _ = image.read(address, &mut buf);
    }
    let _ = find::kernel(&physical, &budget, &unwatched);
}

/// VMCOREINFO, its length before it, and memory with page tables behind it.
pub fn kernel_memory(data: &[u8]) {
    let mut input = Input::new(data);
    let len = usize::from(input.u16());
    let info = VmcoreInfo::parse(input.take(len));
    let addresses = [
        input.u64(),
        info.symbol("init_uts_ns").unwrap_or(0),
        info.symbol("swapper_pg_dir").unwrap_or(0),
    ];
    let rest = input.rest();
    let memory: Arc<dyn Image> = Arc::new(Bytes::new(rest.into(), rest.len(), None));
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let Ok(memory) = VirtualMemory::new(memory.clone(), &info, machine) else { continue };
        for address in addresses {
            let _ = (
                memory.read(address, &mut [0u8; 5000]),
                memory.text(address, 100),
                memory.pointer(!address),
            );
        }
    }
}

/// A BTF blob.
pub fn btf(data: &[u8]) {
    let Ok(btf) = Btf::parse(data.to_vec(), None, &Budget::for_input(data.len() as u64)) else {
        return;
    };
    let types = Types::new(Arc::new(btf));
    for name in ["outer", "inner_t", "task_struct", "module", "circle"] {
        let Ok(id) = types.id(name) else { continue };
        // Each costs as much as all of them where structures hold themselves.
        let names = types.members(id);
        for path in names.iter().take(64).map(String::as_str).chain([
            "inners[2].level",
            "name[3]",
            "mem[1].base",
            "",
        ]) {
            let member = types.member_of(id, path);
            let _ = member.map(|member| (types.target(member.type_id), types.size(member.type_id)));
        }
    }
    let _ = (
        types.enum_value("HUGE"),
        types.enumeration("module_state"),
        types.unnamed(&["seq", "timekeeper"]),
    );
}

/// VMCOREINFO, its length before it, and pieces of a kernel's memory: address, length, bytes.
pub fn kernel(data: &[u8]) {
    let mut input = Input::new(data);
    let len = usize::from(input.u16());
    let info = VmcoreInfo::parse(input.take(len));
    let mut pages = Regions::default();
    while !input.is_empty() && pages.0.len() < 512 {
        let (address, len) = (input.u64(), usize::from(input.u16()));
        pages.put(address, input.take(len));
    }
    let budget = Arc::new(Budget::for_input(data.len() as u64));
    let Ok(kernel) = Kernel::open(Arc::new(pages), &info, Sources::default(), budget) else {
        return;
    };
    let _ = (
        kernel.uname(),
        kernel.time(),
        kernel.saved_cmdlines(),
        kernel.saved_tgids(),
        kernel.tasks(),
    );
    let _ = (kernel.crash(&kernel.log().rows), kernel.cpus(Mask::Possible), kernel.per_cpu(0, 1));
    let mut last = 0;
    kernel.symbols.each(&mut |row| last = row.address);
    let _ =
        (kernel.symbols.at(last), kernel.symbols.text_at(last), kernel.module_types("toy_module"));
}

/// A trace.dat file: every array as text, and as what goes through the visitor.
pub fn trace_dat(data: &[u8]) {
    let scratch = file_of(data);
    let Ok(tracing) = dat::open(scratch.path(), &Arc::default()) else { return };
    for array in 0..tracing.arrays.len().min(8) {
        for style in
            [ftrace_text::Style::AsSet, ftrace_text::Style::Raw, ftrace_text::Style::Fields]
        {
            let options = ftrace_text::Options { style, ..ftrace_text::Options::default() };
            let _ = ftrace_text::write_trace(&mut std::io::sink(), &tracing, array, &options);
        }
    }
    let tracing = Arc::new(tracing);
    for form in [Form::Lines, Form::Plain, Form::Folder(Version::V1_8)] {
        let (path, choice, remarks) = (scratch.path(), Choice::default(), Remarks::default());
        let of = |array| trace(path, &tracing, array, &choice, None, form, &remarks).ok();
        let traces: Vec<_> = (0..tracing.arrays.len().min(8)).filter_map(of).collect();
        let (mut out, all) = (Vec::new(), lastwords_render::select::Selection::default());
        let mut decoded = |note| {
            // What is made of pages decodes, but for times that do not fit.
            let note = format!("{note:?}");
            assert!(!note.contains("not decoded") || note.contains("expected a time"), "{note}");
        };
        let _ = json::write(&traces, &all, &mut out, &read::unwatched, &mut decoded);
        let text = String::from_utf8(out).expect("JSON is UTF-8");
        assert!(text.lines().all(|l| l.starts_with('{') && l.ends_with('}')), "one object a line");
        let Some(ring) = tracing.arrays.first().map(|array| &*array.live) else { continue };
        let (clock, boot, tasks) = ("local", Some(7), &[]);
        let tracer = &Recording { tracing: &tracing, ring };
        let kernel = perfetto::Kernel { trace: 0, is_alone: true, tracer, tasks, clock, boot };
        let _ = perfetto::write(
            (&traces, Some(&kernel), &[]),
            &all,
            &mut sink(),
            &read::unwatched,
            &mut |_| (),
        );
    }
}

/// The text of a format file, a NUL, and the payload of an event of it.
pub fn print_format(data: &[u8]) {
    let (text, payload) = data.split_at(data.iter().position(|b| *b == 0).unwrap_or(data.len()));
    let Some(format) = format_file::parse("fuzz", &String::from_utf8_lossy(text)) else { return };
    let tracing = tracing();
    let machine = print::Machine::from_tracing(&tracing);
    let Ok(program) = print::compile(&format, machine, &NoSymbols) else { return };
    let (mut names, mut scratch, mut out) =
        (print::Names::new(&tracing, true), Vec::new(), Vec::new());
    for payload in [payload, payload.get(1..).unwrap_or_default()] {
        let env = print::Env::new(payload, machine, &mut scratch, &mut names);
        let _ = program.print(&mut { env }, &mut out);
    }
    assert!(out.len() < 1 << 26, "{} bytes of text", out.len());
}

/// A kernel of which nothing is known.
fn tracing() -> Tracing {
    Tracing {
        machine: "x86_64".into(),
        cpus: 1,
        ..Tracing::from_uname("", HeaderPage::of_word_size(8), ByteOrder::Little)
    }
}

/// A sub-buffer of ftrace's: its events lie in it, one behind the other.
pub fn ring_page(data: &[u8]) {
    for (size, order) in [(8, ByteOrder::Little), (4, ByteOrder::Little), (8, ByteOrder::Big)] {
        let layout = HeaderPage::of_word_size(size);
        let Ok(found) = page::header(data, layout, order) else { continue };
        for committed in [found.committed, data.len(), usize::MAX] {
            let mut behind = 0;
            for event in page::Events::new(data, layout, order, committed) {
                let Ok(event) = event else { break };
                assert!(
                    event.payload.start >= behind && event.payload.end <= data.len(),
                    "{event:?}"
                );
                behind = event.payload.end;
            }
        }
    }
}
