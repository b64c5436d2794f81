//! Descriptions of the events of a persistent ring buffer: formats, symbols and names of the kernel
//! that wrote it.
//!
//! They come from a bundle, a crash dump of the same kernel, the kernel's image or package, or the
//! running kernel. A region does not save the build id of its kernel. What it saves is compared:
//! the addresses of the kernel's code and data (Linux 6.12 to 6.14), and those of its code and
//! modules (newer kernels).

use crate::bundle::{self, Bundle};
use crate::dumped_kernel::kernel;
use crate::{Options, package};
use anyhow::{Context, bail, ensure};
use lastwords_bytes::Budget;
use lastwords_ftrace::page::{self, Events};
use lastwords_ftrace::persistent::{Boot, Members, Region};
use lastwords_ftrace::{Format, HeaderPage, Ring as _, Symbols, Tracing};
use lastwords_image::{decompress, vmcore};
use lastwords_kernel::btf::{Btf, Types};
use lastwords_kernel::{Kernel, find, vmlinux};
use lastwords_trace::evidence::{Evidence, Gap};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// The word in place of a file that stands for the running kernel.
pub(super) const RUNNING: &str = "running";
/// The number of bytes that tell the kind of a file.
const HEAD: u64 = 1024;
/// The place and text of the magic word of a tar archive.
const TAR: (usize, &[u8]) = (257, b"ustar");
/// The symbols that are looked up once for [`Landmarks`], in its order.
const LANDMARKS: [&str; 4] = [TEXT_SYMBOLS[0], TEXT_SYMBOLS[1], "rb_data_ptr", "_end"];
/// The symbols whose address a region saves as the address of the code: the first in Linux 6.12 to
/// 6.14, the second in newer kernels.
pub(super) const TEXT_SYMBOLS: [&str; 2] = ["rb_meta_init_text_addr", "_text"];

/// The addresses of a kernel with which the addresses in a region are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Landmarks {
    /// The addresses of [`TEXT_SYMBOLS`].
    pub(super) text: [Option<u64>; 2],
    /// The address in the data that Linux 6.12 to 6.14 saves.
    data: Option<u64>,
    /// The address behind the kernel's own code and data.
    pub(super) end: Option<u64>,
}

impl Landmarks {
    fn find(symbols: &dyn Symbols) -> Self {
        let mut places = [None; LANDMARKS.len()];
        symbols.each(&mut |row| {
            let place = LANDMARKS.iter().position(|name| row.module.is_none() && *name == row.name);
            place
                .and_then(|place| places.get_mut(place))
                .into_iter()
                .for_each(|place| *place = Some(row.address));
        });
        let [old, new, data, end] = places;
        Self { text: [old, new], data, end }
    }
}

/// The description of a kernel's events, with the kernel's own addresses.
#[derive(Clone)]
pub(super) struct Described {
    /// The source, in words for messages.
    pub(super) source: String,
    /// The kernel's tracer, without trace arrays. The evidence is on the source.
    pub(super) tracing: Tracing,
    pub(super) landmarks: Landmarks,
    /// Names and addresses of modules.
    pub(super) modules: Vec<(String, u64)>,
    /// The header of a sub-buffer, if it is known.
    pub(super) header_page: Option<HeaderPage>,
    pub(super) build_id: Option<String>,
    /// The layout of the regions that the kernel writes, by its types, or what is wrong with them;
    /// none if no types are known.
    pub(super) layout: Option<Result<Members, String>>,
}

/// The result of comparing a description's addresses with those that a region saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agreement {
    /// The addresses are of the same build.
    Same,
    /// The addresses are of different builds, if they are not damaged.
    Different,
    /// The kernel writes regions of another layout.
    Foreign,
    /// The addresses do not tell.
    Unknown,
}

impl Described {
    /// Reads all that the user named.
    ///
    /// # Errors
    /// A file cannot be read, or describes no kernel.
    pub(super) fn named(options: &Options<'_>) -> anyhow::Result<Vec<Self>> {
        options.bundle.iter().map(|path| Self::of_path(path, options)).collect()
    }

    /// Reads all that this machine has without being asked: the running kernel, and the bundles
    /// that the unit `lastwords-bundle.service` saved. Unreadable ones are left out.
    pub(super) fn of_this_machine(options: &Options<'_>) -> Vec<Self> {
        let files = std::fs::read_dir(bundle::folder())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let is_bundle = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|end| end == "bundle") && !path.is_symlink()
        };
        let mut files: Vec<_> = files.filter(is_bundle).collect();
        files.sort();
        let running = Self::of_running_kernel().into_iter();
        running.chain(files.iter().filter_map(|path| Self::of_path(path, options).ok())).collect()
    }

    /// Reads what the running kernel says of its events.
    pub(super) fn of_running_kernel() -> anyhow::Result<Self> {
        Self::of_bundle(
            &Bundle::of_running_kernel()?,
            "the running kernel".to_owned(),
            &Budget::default(),
        )
    }

    fn of_path(path: &Path, options: &Options<'_>) -> anyhow::Result<Self> {
        if path == Path::new(RUNNING) && !path.exists() {
            return Self::of_running_kernel();
        }
        let source = path.display().to_string();
        let budget = Arc::new(Budget::default().times(options.budget));
        let file = File::open(path).with_context(|| source.clone())?;
        ensure!(file.metadata().is_ok_and(|metadata| metadata.is_file()), "{source}: not a file");
        budget.admit(file.metadata().map_or(0, |metadata| lastwords_bytes::stored(&metadata)));
        let mut bytes = Vec::new();
        let mut reader =
            decompress::reader(&source, file, &budget).with_context(|| source.clone())?;
        // A dump can begin with the same bytes as compressed data, so an error is ignored here.
        let _ = reader.by_ref().take(HEAD).read_to_end(&mut bytes);
        if bytes.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
            drop(reader);
            return Self::of_bundle(&Bundle::read(path, &budget)?, source.clone(), &budget)
                .with_context(|| source);
        }
        if bytes.starts_with(package::MAGIC) {
            drop(reader);
            return Self::of_image(package::image(path, &budget)?, source, &budget);
        }
        if vmlinux::is_image(&bytes) {
            crate::memory::open_whole(path).with_context(|| source.clone())?;
            reader.read_to_end(&mut bytes).with_context(|| source.clone())?;
            drop(reader);
            return Self::of_image(bytes, source, &budget);
        }
        drop(reader);
        Self::of_dump(path, source, options, budget)
    }

    fn of_bundle(bundle: &Bundle, source: String, budget: &Budget) -> anyhow::Result<Self> {
        let mut tracing = bundle.tracing();
        tracing.byte_order = bundle.byte_order();
        tracing.evidence.gaps = bundle.gaps();
        let types = bundle.btf().and_then(|btf| Btf::parse(btf.to_vec(), None, budget).ok());
        let header_page = bundle.header_page();
        let layout = types.map(|btf| layout(&Types::new(Arc::new(btf)), header_page, &source));
        Ok(Self {
            source,
            landmarks: Landmarks::find(tracing.symbols.as_ref()),
            tracing,
            modules: bundle.modules(),
            header_page,
            build_id: bundle.build_id(),
            layout,
        })
    }

    /// Describes the events that are compiled into a kernel's image.
    fn of_image(bytes: Vec<u8>, source: String, budget: &Arc<Budget>) -> anyhow::Result<Self> {
        let named = || source.clone();
        let kernel = Arc::new(vmlinux::open(bytes, Arc::clone(budget)).with_context(named)?);
        let mut tracing =
            lastwords_ftrace::memory::compiled_description(&kernel).with_context(named)?;
        tracing
            .evidence
            .notes
            .push("a kernel image has no formats of events of modules".to_owned());
        Ok(Self::of_kernel(&kernel, &tracing, source))
    }

    /// Describes the events of the kernel in a crash dump.
    fn of_dump(
        path: &Path,
        source: String,
        options: &Options<'_>,
        budget: Arc<Budget>,
    ) -> anyhow::Result<Self> {
        let named = || source.clone();
        let Some(physical) =
            vmcore::open_physical(path, &budget, options.watch).with_context(named)?
        else {
            bail!(
                "{source}: no bundle of lastwords, no crash dump, no kernel image (vmlinuz or vmlinux) and no Debian package of a kernel"
            );
        };
        let found = find::kernel(&physical, &budget, options.watch).with_context(named)?;
        let (kernel, _, notes) =
            kernel(&physical, found, &options.memory, budget, "").with_context(named)?;
        let tracing = lastwords_ftrace::memory::description(&kernel).with_context(named)?;
        let mut described = Self::of_kernel(&kernel, &tracing, source);
        described.tracing.evidence.notes.splice(0..0, notes);
        Ok(described)
    }

    /// Takes what a kernel's tracer has.
    pub(super) fn of_kernel(kernel: &Kernel, tracing: &Tracing, source: String) -> Self {
        let header_page = Some(tracing.header_page);
        let evidence = Evidence { notes: tracing.evidence.notes.clone(), ..Evidence::default() };
        Self {
            layout: Some(layout(&kernel.types, header_page, &source)),
            source,
            tracing: Tracing { arrays: Vec::new(), evidence, ..tracing.clone() },
            landmarks: Landmarks::find(tracing.symbols.as_ref()),
            modules: kernel
                .modules
                .iter()
                .map(|module| (module.name.clone(), module.base))
                .collect(),
            header_page,
            build_id: kernel.build_id(),
        }
    }

    /// Compares a region's layout and the addresses that it saves with those of this kernel.
    pub(super) fn agreement(&self, region: &Region) -> Agreement {
        let boot = &region.boot;
        if self
            .layout
            .as_ref()
            .is_some_and(|layout| layout.as_ref().is_ok_and(|layout| *layout != region.layout))
        {
            return Agreement::Foreign;
        }
        let Landmarks { text: [code, text], data, .. } = self.landmarks;
        // Without the right to see them, all addresses are 0.
        let [code, data, text] =
            [code, data, text].map(|place| place.filter(|address| *address != 0));
        match (boot.text_address, boot.data_address) {
            (Some(code_there), Some(data_there)) => match (code, data) {
                (Some(code), Some(data))
                    if code_there.wrapping_sub(code) == data_there.wrapping_sub(data) =>
                {
                    Agreement::Same
                }
                (Some(_), Some(_)) => Agreement::Different,
                _ => Agreement::Unknown,
            },
            (Some(text_there), None) if text == Some(text_there) && self.has_modules_of(boot) => {
                Agreement::Same
            }
            _ => Agreement::Unknown,
        }
    }

    /// Returns true if the region lists modules, and all that it lists are at the same addresses
    /// here. Addresses of modules are random, so this is the same boot.
    fn has_modules_of(&self, boot: &Boot) -> bool {
        let is_here = |name: &str, address: u64| {
            self.modules.iter().any(|(own, at)| own == name && *at == address)
        };
        !boot.modules.is_empty()
            && boot.modules.iter().all(|module| is_here(&module.name, module.address))
    }
}

/// The layout of the regions that a kernel with these types writes, or what is wrong with the
/// types.
fn layout(types: &Types, header_page: Option<HeaderPage>, source: &str) -> Result<Members, String> {
    Members::of_types(types, header_page).map_err(|error| format!("{source}: {error}"))
}

/// Chooses among the sources that the user named: those of another build than the region's are left
/// out, and the others must be of one build. The first of them is used.
///
/// # Errors
/// The sources are of different builds, and the region does not tell which is right.
pub(super) fn choose(
    named: &[Described],
    region: &Region,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Described>> {
    let agreements: Vec<_> =
        named.iter().map(|described| (described, described.agreement(region))).collect();
    let of = |wanted: &[Agreement]| -> Vec<&Described> {
        agreements
            .iter()
            .filter(|(_, agreement)| wanted.contains(agreement))
            .map(|(described, _)| *described)
            .collect()
    };
    for Described { source, .. } in of(&[Agreement::Foreign]) {
        notes.push(format!(
            "{source} is not used: its kernel writes persistent ring buffers of another layout"
        ));
    }
    let (same, different) = (of(&[Agreement::Same]), of(&[Agreement::Different]));
    let right = if same.is_empty() { of(&[Agreement::Unknown]) } else { same };
    let Some(first) = right.first() else {
        let Some(first) = different.first() else { return Ok(None) };
        let source = &first.source;
        notes.push(format!(
            "{source} is of another build than the kernel that wrote the region, or the addresses that the region saves are damaged"
        ));
        return Ok(Some((*first).clone()));
    };
    for Described { source, .. } in different {
        notes.push(format!(
            "{source} is not used: it is of another build than the kernel that wrote the region"
        ));
    }
    let of_other_build =
        |other: &&&Described| other.build_id.is_some() && other.build_id != first.build_id;
    if let Some(other) = right.iter().find(of_other_build).filter(|_| first.build_id.is_some()) {
        let build = |described: &Described| described.build_id.clone().unwrap_or_default();
        bail!(
            "{} is of build {} and {} of build {}, and the region does not tell which kernel wrote it: give one with --bundle",
            first.source,
            build(first),
            other.source,
            build(other)
        );
    }
    Ok(Some((*first).clone()))
}

/// Passes the payload of each event in the newest sub-buffers of each CPU, `most` at most.
pub(super) fn each_payload(region: &Region, most: usize, mut take: impl FnMut(&[u8])) {
    let mut bytes = Vec::new();
    for (cpu, row) in region.cpus().iter().enumerate() {
        for index in (0..row.sub_buffers).rev().take(most) {
            let info = region.sub_buffer(cpu, index, &mut bytes);
            let events =
                Events::new(&bytes, region.header_page(), region.layout.byte_order, info.committed);
            events
                .map_while(Result::ok)
                .filter_map(|event| bytes.get(event.payload))
                .for_each(&mut take);
        }
    }
}

/// Most sub-buffers of a region whose events are compared with their formats.
const SAMPLE: usize = 64;

/// Removes the formats that do not fit the events of a region: if most events with an id are
/// shorter than the format's fields, or longer in spite of fixed lengths, then the id is another
/// event's in the boot that wrote them.
pub(super) fn drop_misfits(described: &mut Described, region: &Region, notes: &mut Vec<String>) {
    let mut counts: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    each_payload(region, SAMPLE, |payload| {
        let id = page::short(payload, 0, region.layout.byte_order);
        let Some(format) = described.tracing.formats.get(&id) else { return };
        let (good, bad) = counts.entry(id).or_default();
        let count = if fits(format, payload.len() as u64) { good } else { bad };
        *count = count.saturating_add(1);
    });
    let wrong: Vec<u16> =
        counts.into_iter().filter(|(_, (good, bad))| bad > good).map(|(id, _)| id).collect();
    if wrong.is_empty() {
        return;
    }
    let source = described.source.clone();
    if described.agreement(region) == Agreement::Different {
        described.tracing.formats.clear();
        notes.push(format!(
            "events are shown without the formats of {source}, which do not fit them"
        ));
        return;
    }
    for id in wrong {
        if let Some(Format { system, name, .. }) = described.tracing.formats.remove(&id) {
            notes.push(format!(
                "events with id {id} are shown without a format: they have other lengths than {system}:{name}, which has this id in {source}"
            ));
        }
    }
}

/// Returns the account's lines on kinds of events whose format is not known: their bytes are shown.
pub(super) fn unknown_formats(formats: &BTreeMap<u16, Format>, region: &Region) -> Vec<Gap> {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    each_payload(region, usize::MAX, |payload| {
        let id = page::short(payload, 0, region.layout.byte_order);
        if !formats.contains_key(&id) {
            let count = counts.entry(id).or_default();
            *count = count.saturating_add(1);
        }
    });
    let events = |count: u64| if count == 1 { "event" } else { "events" };
    match counts.values().fold(0u64, |sum, count| sum.saturating_add(*count)) {
        0 => Vec::new(),
        all if formats.is_empty() => {
            vec![Gap::not_known(None, &format!("the formats of its {all} {}", events(all)))]
        }
        _ => {
            let line = |(id, count): (u16, u64)| {
                format!("the format of {count} {} with id {id}", events(count))
            };
            counts.into_iter().map(|counted| Gap::not_known(None, &line(counted))).collect()
        }
    }
}

/// Returns true if an event of `len` bytes can have a format. The kernel rounds lengths up to four
/// bytes, and structures to the alignment of their members.
fn fits(format: &Format, len: u64) -> bool {
    let own = || format.fields.iter().filter(|field| !field.is_common);
    // Stacks are recorded with as many entries as they have, whatever the format says.
    if format.system == "ftrace" {
        return true;
    }
    let least = own()
        .map(|field| u64::from(field.offset).saturating_add(field.size.into()))
        .max()
        .unwrap_or(0);
    let is_open = |declaration: &str| {
        declaration.starts_with("__data_loc")
            || declaration.starts_with("__rel_loc")
            || declaration.ends_with("[]")
    };
    // The arguments of system calls can be followed by copies of user memory, and the fields of user
    // events by what else a program writes.
    let has_fixed_length = format.system != "syscalls"
        && !format.is_user_event()
        && !own().any(|f| f.size == 0 || is_open(&f.declaration));
    len >= least && (!has_fixed_length || len <= least.next_multiple_of(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_ftrace::Field;

    /// A program may write more than the fields of its event, and never less.
    #[test]
    fn user_events_may_be_longer_than_their_fields() {
        let format = |system: &str| {
            let mut fields = Field::common();
            let (declaration, name) = ("u32 id".to_owned(), "id".to_owned());
            fields.push(Field {
                declaration,
                name,
                offset: 8,
                size: 4,
                is_signed: false,
                is_common: false,
            });
            let (system, name, print_format) = (system.to_owned(), "e".to_owned(), String::new());
            Format { id: 900, system, name, fields, print_format, probed: None }
        };
        let fitting = |system| [8, 12, 16, 40].map(|len| fits(&format(system), len));
        assert_eq!(fitting("sched"), [false, true, true, false]);
        assert_eq!(fitting("user_events"), [false, true, true, true]);
    }
}
