//! Opens ftrace's persistent ring buffers: a copy of one, or all in a machine's memory. A bundle or
//! the kernel in the same memory describes their events.

use super::{FileKind, Opening, Opens, Place};
use crate::SourceKind;
use crate::describe::{self, Agreement, Described, TEXT_SYMBOLS};
use crate::placement::{self, Placement};
use crate::relocated::RelocatedSymbols;
use crate::reserved::Reserved;
use crate::{Machine, Opened, Options, machine_traces};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_ftrace::dat;
use lastwords_ftrace::persistent::{self, Boot, Members, Region};
use lastwords_ftrace::{Array, NoSymbols, Ring, Tracing};
use lastwords_image::{self as image, Image};
use lastwords_kernel::Kernel;
use lastwords_trace::evidence::{Evidence, Gap};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The number of bytes that distinguish a sub-buffer from others: its time, its committed size, and
/// its first events.
const HEAD: usize = 64;
/// The kernel's clocks in the order in which a region numbers them (`trace_clocks` in
/// `kernel/trace/trace.c`; the last is x86's).
const CLOCKS: [&str; 10] =
    ["local", "global", "counter", "uptime", "perf", "mono", "mono_raw", "boot", "tai", "x86-tsc"];
/// The name of the trace of sub-buffers that a reader or a kernel emptied.
const EMPTIED: &str = "emptied";

/// A persistent ring buffer of ftrace.
pub(super) static PERSISTENT: Place = Place {
    inputs: &["ftrace's persistent ring buffer"],
    files: &[FileKind {
        words: "a persistent ring buffer of ftrace",
        begins: persistent::is_region,
        opens: Opens::Place,
    }],
    is_folder: |_| false,
    open,
};

/// Opens a copy of a region.
///
/// # Errors
/// The region or the bundle cannot be read.
fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, budget, opened, .. } = opening;
    let path = location.path();
    let named = || path.display().to_string();
    let image = image::open(path, budget, options.watch).with_context(named)?.image;
    let len = image.ranges().iter().map(lastwords_image::Range::end).max().unwrap_or(0);
    let source = Descriptions::open(options, None)?;
    let region = source.read(&image, 0..len, budget);
    // Raw memory may begin with the remains of a region, and have whole ones behind them.
    if !region.as_ref().is_ok_and(|region| region.cpus().iter().any(|cpu| cpu.stats.entries > 0)) {
        let found = find(&image, None, options, budget).unwrap_or_default();
        if found.iter().any(|found| found.at > 0) {
            opened.notes.push(format!(
                "{}: it is read as raw memory: it begins like a persistent ring buffer, of which nothing is there, and has others behind it",
                path.display()
            ));
            add(path, found, options, opened);
            return Ok(());
        }
    }
    let region = region.with_context(named)?;
    let emptied = region.emptied();
    let (tracing, mut notes) = tracing(String::new(), region, &source)?;
    if let Some(emptied) = emptied {
        notes.push(add_emptied(path, emptied, &source, options, opened)?);
    }
    add_tracing(path, tracing, notes, options, opened);
    Ok(())
}

/// Adds the events of emptied sub-buffers as a trace of its own, if it is asked for by its name.
/// They may be of an earlier boot: neither addresses nor process IDs are named. Returns a note
/// about them.
fn add_emptied(
    path: &Path,
    emptied: Region,
    source: &Descriptions,
    options: &Options<'_>,
    opened: &mut Opened,
) -> anyhow::Result<String> {
    let events = emptied.cpus().iter().map(|cpu| cpu.stats.entries).fold(0, u64::saturating_add);
    if !options.names.is_empty() && options.wants(EMPTIED) {
        let (tracing, _) = tracing(EMPTIED.to_owned(), emptied, source)?;
        let (comms, tgids, symbols) = (BTreeMap::new(), BTreeMap::new(), Arc::new(NoSymbols));
        let tracing = Tracing { comms, tgids, symbols, printk_formats: BTreeMap::new(), ..tracing };
        let notes = vec![
            "these events were read, or discarded by a kernel: they may be of an earlier boot"
                .to_owned(),
        ];
        add_tracing(path, tracing, notes, options, opened);
    }
    Ok(format!(
        "{events} events in memory were read, or discarded by a kernel: `--instance {EMPTIED}` shows them"
    ))
}

/// Opens an instance of the running kernel, whose buffer has `len` bytes at `address` of physical
/// memory. The running kernel describes the events if no bundle is given.
///
/// # Errors
/// The memory, the bundle or tracefs cannot be read.
pub(super) fn open_running(
    path: &Path,
    (address, len): (u64, u64),
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let named = || {
        format!(
            "{}: its buffer is read at {address:#x} of physical memory; root alone may, and no one where the kernel is locked down",
            path.display()
        )
    };
    let image: Arc<dyn Image> = Arc::new(Reserved::copy(address, len, budget).with_context(named)?);
    let source = Descriptions::of_running(options)?;
    let region = source.read(&image, 0..len, budget).with_context(named)?;
    let name = options.names.first().cloned().unwrap_or_default();
    let (tracing, notes) = tracing(name, region, &source)?;
    add_tracing(path, tracing, notes, options, opened);
    Ok(())
}

/// The smallest region: a page of metadata and two sub-buffers. A memory without room for one is
/// not searched, because the descriptions of this machine's kernel would be read for nothing.
const SMALLEST: u64 = 3 * 4096;

/// A region in a machine's memory.
pub(super) struct FoundRegion {
    /// Its place in the memory.
    at: u64,
    tracing: Tracing,
    notes: Vec<String>,
    /// The position of the kernel's trace array that has the same sub-buffers, from another boot.
    /// The kernel's symbols are not those of that boot.
    pub(super) instead_of: Option<usize>,
}

/// Finds the regions in a machine's memory. `kernel` is the kernel in the memory with its tracer.
/// Rings into which this kernel itself records are left out.
///
/// # Errors
/// A region cannot be read; the bundle cannot be read; the budget is spent.
pub(super) fn find(
    image: &Arc<dyn Image>,
    kernel: Option<(&Kernel, &Tracing)>,
    options: &Options<'_>,
    budget: &Arc<Budget>,
) -> anyhow::Result<Vec<FoundRegion>> {
    let (mut all, mut unread) = (Vec::new(), None);
    let has_room = image.ranges().iter().any(|range| range.hole.is_none() && range.len >= SMALLEST);
    if !has_room && options.bundle.is_empty() {
        return Ok(all);
    }
    let source = Descriptions::open(options, kernel)?;
    for place in persistent::find(image.as_ref(), &source.layouts(), budget, options.watch)? {
        let region = match source.read(image, place.clone(), budget) {
            Err(error) if budget.bytes(image.name(), 0).is_ok() => {
                unread.get_or_insert_with(|| {
                    anyhow::anyhow!("the region at {:#x}: {error:#}", place.start)
                });
                continue;
            }
            region => region?,
        };
        let own = kernel.and_then(|(_, tracing)| array_of_region(&region, tracing));
        if own.is_some() && kernel.is_some_and(|(kernel, _)| is_of_this_boot(&region.boot, kernel))
        {
            continue;
        }
        let array = own.and_then(|own| kernel.and_then(|(_, tracing)| tracing.arrays.get(own)));
        let name = array
            .map_or_else(|| format!("persistent@{:#x}", place.start), |array| array.name.clone());
        let (tracing, notes) = tracing(name, region, &source)?;
        all.push(FoundRegion { at: place.start, tracing, notes, instead_of: own });
    }
    match (unread, all.first_mut()) {
        (Some(error), None) => return Err(error),
        (Some(error), Some(first)) => first.notes.push(format!("{error:#}")),
        (None, _) => {}
    }
    Ok(all)
}

/// Adds the traces of a region.
fn add_tracing(
    path: &Path,
    tracing: Tracing,
    notes: Vec<String>,
    options: &Options<'_>,
    opened: &mut Opened,
) {
    let machine = Machine::new(None, tracing, notes);
    machine_traces::add(path, SourceKind::Persistent, machine, Vec::new(), options, opened);
}

/// Adds the regions of a machine's memory.
pub(super) fn add(
    path: &Path,
    found: Vec<FoundRegion>,
    options: &Options<'_>,
    opened: &mut Opened,
) {
    for FoundRegion { tracing, notes, .. } in found {
        let machine = Machine { is_memory: true, ..Machine::new(None, tracing, notes) };
        machine_traces::add(path, SourceKind::Persistent, machine, Vec::new(), options, opened);
    }
}

/// Returns true if the kernel was started with rings in memory that a reboot does not clear. Only
/// then the whole memory is searched for them.
pub(super) fn is_configured(kernel: &Kernel) -> bool {
    let line = kernel
        .pointer("saved_command_line")
        .and_then(|address| kernel.text(address))
        .unwrap_or_default();
    let is_instance = |word: &str| word.starts_with("trace_instance=") && word.contains('@');
    line.split_whitespace().any(|word| is_instance(word) || word.starts_with("reserve_mem="))
}

/// Returns true if the kernel in the memory wrote the region. The region saves the address of the
/// kernel's code, which is compared.
fn is_of_this_boot(boot: &Boot, kernel: &Kernel) -> bool {
    let here = || TEXT_SYMBOLS.iter().filter_map(|name| kernel.symbol(name).ok());
    boot.text_address.is_none_or(|there| here().any(|here| here == there))
}

/// Returns the position of the kernel's trace array that has the sub-buffers of a region.
fn array_of_region(region: &Region, tracing: &Tracing) -> Option<usize> {
    let heads = |ring: &dyn Ring| -> BTreeSet<Vec<u8>> {
        let mut bytes = Vec::new();
        let places = ring
            .cpus()
            .iter()
            .enumerate()
            .flat_map(|(cpu, row)| (0..row.sub_buffers).map(move |n| (cpu, n)));
        let head = |(cpu, index): (usize, usize)| {
            let info = ring.sub_buffer(cpu, index, &mut bytes);
            bytes.get(..HEAD).filter(|_| info.committed > 0).map(<[u8]>::to_vec)
        };
        places.filter_map(head).collect()
    };
    let own = heads(region);
    tracing.arrays.iter().position(|array| !own.is_disjoint(&heads(array.live.as_ref())))
}

/// The sources of formats and symbols of a region.
struct Descriptions {
    /// The sources that the user named.
    named: Vec<Described>,
    /// The kernel in the same memory.
    kernel: Option<Described>,
    /// The sources that this machine has. They are read only if nothing else is given.
    here: Vec<Described>,
}

impl Descriptions {
    fn open(options: &Options<'_>, kernel: Option<(&Kernel, &Tracing)>) -> anyhow::Result<Self> {
        let named = Described::named(options)?;
        let of_kernel = |(kernel, tracing)| {
            Described::of_kernel(kernel, tracing, "the kernel in the same memory".to_owned())
        };
        let kernel = kernel.filter(|_| named.is_empty()).map(of_kernel);
        let is_given = !named.is_empty() || kernel.is_some();
        let here = if is_given { Vec::new() } else { Described::of_this_machine(options) };
        Ok(Self { named, kernel, here })
    }

    /// The sources of an instance of the running kernel.
    fn of_running(options: &Options<'_>) -> anyhow::Result<Self> {
        let named = Described::named(options)?;
        let kernel = if named.is_empty() { Some(Described::of_running_kernel()?) } else { None };
        Ok(Self { named, kernel, here: Vec::new() })
    }

    /// Returns all descriptions.
    fn all(&self) -> impl Iterator<Item = &Described> {
        self.named.iter().chain(&self.kernel).chain(&self.here)
    }

    /// Returns the layouts by which the described kernels write, each once, without those that need
    /// no description.
    fn layouts(&self) -> Vec<Members> {
        let mut layouts: Vec<Members> = Vec::new();
        for layout in self.all().filter_map(|described| described.layout.clone()?.ok()) {
            if !layout.is_known() && !layouts.contains(&layout) {
                layouts.push(layout);
            }
        }
        layouts
    }

    /// Reads a region by the layouts that are known and by those of the described kernels. The
    /// layout of a description that nobody named is used only if the region proves that it is of
    /// the same build.
    fn read(
        &self,
        image: &Arc<dyn Image>,
        place: Range<u64>,
        budget: &Budget,
    ) -> anyhow::Result<Region> {
        let read = |layouts: &[Members]| {
            persistent::read(
                image,
                place.start,
                place.end.saturating_sub(place.start),
                layouts,
                budget,
            )
        };
        let region = read(&self.layouts()).map_err(|error| self.unreadable(error))?;
        let is_proven =
            || self.here.iter().any(|described| described.agreement(&region) == Agreement::Same);
        if region.layout.is_known() || self.here.is_empty() || is_proven() {
            return Ok(region);
        }
        read(&[]).map_err(|error| self.unreadable(error))
    }

    /// Says what is needed to read a region whose layout is not known.
    fn unreadable(&self, error: lastwords_bytes::Error) -> anyhow::Error {
        if error.kind == lastwords_bytes::ErrorKind::Budget {
            return error.into();
        }
        let mut why = error.to_string();
        for reason in self
            .named
            .iter()
            .chain(&self.kernel)
            .filter_map(|described| described.layout.clone()?.err())
        {
            why.push_str(&format!("; the types of {reason}"));
        }
        let given = if self.named.is_empty() {
            "give the kernel that wrote it"
        } else {
            "give another description of the kernel that wrote it"
        };
        anyhow::anyhow!(
            "{why}; {given}, whose types tell the layout: --bundle FILE (its bundle, a crash dump of it, its image vmlinuz or its Debian package) or --bundle running"
        )
    }

    /// Chooses a description for a region; none if none is known to be right.
    fn chosen(
        &self,
        region: &Region,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Option<Described>> {
        if let Some(kernel) = &self.kernel {
            let agreement = kernel.agreement(region);
            notes.push(
                match agreement {
                    Agreement::Same => "formats and names are those of the kernel in the same memory, which is the same build as the kernel that wrote the region",
                    Agreement::Different | Agreement::Foreign => "the kernel in the same memory is another build than the kernel that wrote the region: give that one's bundle (--bundle FILE)",
                    Agreement::Unknown => "formats and names are those of the kernel in the same memory: where another kernel wrote the region, give that one's bundle (--bundle FILE)",
                }
                .into(),
            );
            let is_used = matches!(agreement, Agreement::Same | Agreement::Unknown);
            return Ok(is_used.then(|| kernel.clone()));
        }
        if let Some(here) =
            self.here.iter().find(|described| described.agreement(region) == Agreement::Same)
        {
            let source = &here.source;
            notes.push(format!(
                "formats and names are those of {source}, because the region saves the addresses of the same build"
            ));
            return Ok(Some(here.clone()));
        }
        describe::choose(&self.named, region, notes)
    }

    /// Returns formats and symbols, with addresses of the boot that wrote the region.
    fn described(&self, region: &Region, notes: &mut Vec<String>) -> anyhow::Result<Tracing> {
        let header_page = region.header_page();
        let Some(mut described) = self.chosen(region, notes)? else {
            if self.kernel.is_none() {
                notes.push(
                    "events have no formats and addresses no names: give the kernel that wrote them with --bundle FILE (its bundle, a crash dump of it, its image vmlinuz or its Debian package) or with --bundle running"
                        .into(),
                );
            }
            let symbols = Arc::new(RelocatedSymbols::unknown(&region.boot));
            return Ok(Tracing { symbols, ..base(region, "") });
        };
        let (source, page) = (&described.source, described.header_page.unwrap_or(header_page));
        if described.tracing.byte_order != region.layout.byte_order {
            bail!("{source} is of a machine of another byte order than the region");
        }
        if page != header_page {
            bail!(
                "sub-buffers of {source} begin otherwise ({page:?}) than those of the region ({header_page:?})"
            );
        }
        let Evidence { notes: mut remarks, gaps, .. } =
            std::mem::take(&mut described.tracing.evidence);
        notes.append(&mut remarks);
        describe::drop_misfits(&mut described, region, notes);
        let mut boot = region.boot.clone();
        match placement::find(&described, region) {
            Placement::Saved => {}
            Placement::Described => {
                boot.text_address = described.landmarks.text.into_iter().flatten().next();
                notes.push(format!(
                    "addresses are named as those of the boot of {}: they are not those of the boot whose address the region saves",
                    described.source
                ));
            }
            Placement::Unknown(count) => {
                notes.push(format!(
                    "addresses have no names: {count} are outside of the kernel as the region places it. A later boot went on recording in the region, which does not save that boot's address: give a bundle that was saved in that boot"
                ));
                return Ok(with_gaps(without_names(described, &boot, region), gaps));
            }
        }
        Ok(with_gaps(with_names(described, &boot, region, notes), gaps))
    }
}

fn tracing(
    name: String,
    region: Region,
    source: &Descriptions,
) -> anyhow::Result<(Tracing, Vec<String>)> {
    let mut notes = Vec::new();
    let mut described = source.described(&region, &mut notes)?;
    let mut gaps = describe::unknown_formats(&described.formats, &region);
    gaps.append(&mut described.evidence.gaps);
    // A kernel that saves no clock shows what it finds after a boot by its own one.
    let clock = match region.boot.clock {
        None => Some("local"),
        Some(number) => {
            let known = CLOCKS.get(number as usize).copied();
            if known.is_none() {
                gaps.push(Gap::not_known(
                    None,
                    &format!("the clock: no kernel has number {number}"),
                ));
            }
            known
        }
    };
    let cpus = u32::try_from(region.cpus().len()).unwrap_or(u32::MAX);
    // A sub-buffer of these rings is one page.
    let page_size = region.cpus().first().map_or(4096, |cpu| cpu.sub_buffer_size);
    let array = Array {
        tracer: Some("nop".to_owned()),
        clock: clock.and_then(dat::clock),
        is_of_last_boot: true,
        is_on: Some(false),
        ..Array::unknown(name, Arc::new(region))
    };
    let tracing = Tracing {
        page_size,
        cpus,
        learns_comms: true,
        arrays: vec![array],
        evidence: Evidence { gaps, ..Evidence::default() },
        ..described
    };
    Ok((tracing, notes))
}

/// Adds the missing parts of the description.
fn with_gaps(mut tracing: Tracing, gaps: Vec<Gap>) -> Tracing {
    tracing.evidence.gaps.extend(gaps);
    tracing
}

/// The tracer of a region of which nothing but the words of `uname -a` are known.
fn base(region: &Region, uname: &str) -> Tracing {
    Tracing {
        word_size: region.layout.word_size,
        ..Tracing::from_uname(uname, region.header_page(), region.layout.byte_order)
    }
}

/// Makes a description without anything that depends on addresses or on the boot.
fn without_names(of: Described, boot: &Boot, region: &Region) -> Tracing {
    let symbols = Arc::new(RelocatedSymbols::unknown(boot));
    let Tracing { formats, clocks, uname, .. } = of.tracing;
    Tracing { formats, clocks, symbols, ..base(region, &uname) }
}

/// Makes a description with addresses of the boot that wrote the region. Names of process IDs are
/// left out if the boot is another one.
fn with_names(of: Described, boot: &Boot, region: &Region, notes: &mut Vec<String>) -> Tracing {
    let Described { tracing: of, landmarks, modules, .. } = of;
    let symbols = RelocatedSymbols::new(of.symbols, landmarks, modules, boot, notes);
    let is_same_boot = symbols.are_of_the_boot();
    let printk = of.printk_formats.into_iter();
    let printk_formats =
        printk.map(|(address, text)| (symbols.kernel_address(address), text)).collect();
    Tracing {
        formats: of.formats,
        comms: if is_same_boot { of.comms } else { BTreeMap::new() },
        tgids: if is_same_boot { of.tgids } else { BTreeMap::new() },
        printk_formats,
        symbols: Arc::new(symbols),
        clocks: of.clocks,
        ..base(region, &of.uname)
    }
}
