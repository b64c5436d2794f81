//! Lists the BPF programs.

use crate::idr;
use crate::lost;
use crate::map::check_id;
use crate::words::Words;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::Gap;
use serde::Serialize;
use std::collections::HashMap;

/// Most maps of a program (`MAX_USED_MAPS` is 64).
const MAPS_MAX: u64 = 1024;

/// A BPF program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Id of the program.
    pub id: u32,
    /// Name of the program; it may be empty.
    pub name: String,
    /// Kind of the program in the kernel's word, such as `tracepoint`.
    pub kind: String,
    /// Hash of its instructions, hexadecimal.
    pub tag: String,
    /// Function to which a program of tracing is attached, or null.
    pub attached_to: Option<String>,
    /// Kinds of the links that attach the program. A program that was attached without a link has
    /// none.
    pub links: Vec<String>,
    /// Ids of the maps that it uses.
    pub maps: Vec<u32>,
    /// Nanoseconds from the boot to the load of the program.
    pub loaded_ns: u64,
    /// Address of its `struct bpf_prog`.
    pub address: u64,
}

/// Returns all programs. Those that cannot be read become gaps.
///
/// # Errors
/// The kernel has none, or the image lacks their list.
pub(crate) fn all(
    kernel: &Kernel,
    words: &Words,
    gaps: &mut Vec<Gap>,
) -> Result<Vec<Program>, Error> {
    let links = links(kernel, words, gaps);
    let mut programs = Vec::new();
    for (id, address) in idr::entries(kernel, "prog_idr", "the list of BPF programs", gaps)? {
        match kernel.object("bpf_prog", address).and_then(|object| program(&object, id, words)) {
            Ok(mut program) => {
                program.links = links.get(&address).cloned().unwrap_or_default();
                programs.push(program);
            }
            Err(error) => gaps.push(lost(&format!("BPF program {id} at {address:#x}"), &error)),
        }
    }
    Ok(programs)
}

fn program(object: &Object<'_>, id: u32, words: &Words) -> Result<Program, Error> {
    let aux = object.pointer("aux")?;
    check_id(&aux, id)?;
    let function =
        if aux.has("attach_func_name") { aux.text("attach_func_name")? } else { String::new() };
    let maps = (0..aux.u64("used_map_cnt")?.min(MAPS_MAX))
        .map(|at| aux.element("used_maps", at)?.pointer("")?.fit("id"));
    Ok(Program {
        id,
        name: aux.text("name")?,
        kind: words.program(object.u64("type")?),
        tag: object.bytes("tag")?.iter().map(|byte| format!("{byte:02x}")).collect(),
        attached_to: Some(function).filter(|function| !function.is_empty()),
        links: Vec::new(),
        maps: maps.collect::<Result<_, _>>()?,
        loaded_ns: aux.u64("load_time")?,
        address: object.place(),
    })
}

/// Returns the kinds of the links to each program, by its address. Linux 5.8 added links.
fn links(kernel: &Kernel, words: &Words, gaps: &mut Vec<Gap>) -> HashMap<u64, Vec<String>> {
    let mut links: HashMap<u64, Vec<String>> = HashMap::new();
    if kernel.symbol("link_idr").is_err() {
        return links;
    }
    let what = "the list of BPF links";
    let entries = idr::entries(kernel, "link_idr", what, gaps);
    for (id, address) in crate::listed(entries, what, gaps) {
        let link = kernel.object("bpf_link", address).and_then(|link| {
            check_id(&link, id)?;
            Ok((link.address("prog")?, words.link(link.u64("type")?)))
        });
        match link {
            Ok((program, word)) => links.entry(program).or_default().push(word),
            Err(error) => gaps.push(lost(&format!("BPF link {id} at {address:#x}"), &error)),
        }
    }
    links
}
