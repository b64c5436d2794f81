//! A copy of ftrace's persistent ring buffer, described by a bundle.

use crate::bundle::Bundle;
use crate::{Machine, Opened, Options, machine};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image as image;
use lastwords_trace::evidence::Evidence;
use lastwords_trace::ftrace::{Array, NoSymbols, Ring, Symbol, SymbolRow, Symbols, Tracing};
use lastwords_walk::persistent::{self, Boot, Region};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The kernel's clocks in the order in which a region numbers them (`trace_clocks` in `kernel/trace/trace.c`).
const CLOCKS: [&str; 9] = ["local", "global", "counter", "uptime", "perf", "mono", "mono_raw", "boot", "tai"];
/// Clocks that do not count nanoseconds.
const PLAIN_CLOCKS: [&str; 2] = ["counter", "uptime"];
/// The symbol whose address a region saves as that of the code: of Linux 6.12 to 6.14, and of newer kernels.
const TEXT_SYMBOLS: [&str; 2] = ["rb_meta_init_text_addr", "_text"];

/// Opens a region.
///
/// # Errors
/// It cannot be read; the bundle cannot be read.
pub(super) fn open(
    path: &Path,
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let named = || path.display().to_string();
    let image = image::open(path, budget, options.watch).with_context(named)?.image;
    let len = image.ranges().iter().map(lastwords_image::Range::end).max().unwrap_or(0);
    let region = persistent::read(&image, 0, len, budget).with_context(named)?;
    let bundle = options.bundle.as_deref().map(Bundle::read).transpose()?;
    let (tracing, notes) = tracing(region, bundle.as_ref())?;
    machine::add(path, "persistent ring buffer", Machine::new(None, tracing, notes), Vec::new(), options, opened);
    Ok(())
}

fn tracing(region: Region, bundle: Option<&Bundle>) -> anyhow::Result<(Tracing, Vec<String>)> {
    let mut notes = Vec::new();
    let described = match bundle {
        Some(bundle) => Described::of(bundle, &region.boot, &mut notes),
        None => {
            notes.push(
                "events have no formats and addresses no names: --bundle FILE has those of the boot that wrote them"
                    .into(),
            );
            Described::default()
        }
    };
    if bundle.is_some_and(|bundle| bundle.byte_order() != region.byte_order) {
        bail!("the bundle is of a machine of another byte order than the region");
    }
    let header_page = region.header_page();
    if let Some(other) = bundle.and_then(Bundle::header_page).filter(|page| *page != header_page) {
        bail!("the bundle's sub-buffers begin otherwise ({other:?}) than those of the region ({header_page:?})");
    }
    let clock = region.boot.clock.and_then(|clock| CLOCKS.get(clock as usize).copied()).unwrap_or("local").to_owned();
    let cpus = u32::try_from(region.cpus().len()).unwrap_or(u32::MAX);
    let (byte_order, word_size) = (region.byte_order, region.word_size);
    let words: Vec<&str> = described.uname.split_whitespace().collect();
    let word = |at: usize| words.get(at).copied().unwrap_or_default().to_owned();
    let machine = words.iter().rev().find(|word| **word != "GNU/Linux").copied().unwrap_or_default().to_owned();
    let array = Array {
        name: String::new(),
        tracer: "nop".to_owned(),
        clock_in_ns: !PLAIN_CLOCKS.contains(&clock.as_str()),
        clock,
        options: Vec::new(),
        tracer_options: Vec::new(),
        shows_longest: false,
        is_of_last_boot: true,
        is_on: false,
        live: Arc::new(region),
        snapshot: None,
    };
    let tracing = Tracing {
        release: word(2),
        machine,
        uname: described.uname.clone(),
        byte_order,
        word_size,
        page_size: 4096,
        cpus,
        header_page,
        formats: described.formats,
        comms: described.comms,
        tgids: described.tgids,
        printk_formats: described.printk_formats,
        symbols: described.symbols,
        pointer_key: None,
        preempt_dynamic_mode: None,
        preempt_voluntary: false,
        clocks: described.clocks,
        real_time: None,
        arrays: vec![array],
        evidence: Evidence::default(),
    };
    Ok((tracing, notes))
}

/// What a bundle tells, with addresses of the boot that wrote the region.
struct Described {
    uname: String,
    formats: BTreeMap<u16, lastwords_trace::ftrace::Format>,
    comms: BTreeMap<u32, String>,
    tgids: BTreeMap<u32, u32>,
    printk_formats: BTreeMap<u64, String>,
    symbols: Arc<dyn Symbols>,
    clocks: String,
}

impl Default for Described {
    fn default() -> Self {
        Self {
            uname: String::new(),
            formats: BTreeMap::new(),
            comms: BTreeMap::new(),
            tgids: BTreeMap::new(),
            printk_formats: BTreeMap::new(),
            symbols: Arc::new(NoSymbols),
            clocks: String::new(),
        }
    }
}

impl Described {
    fn of(bundle: &Bundle, boot: &Boot, notes: &mut Vec<String>) -> Self {
        let (formats, mut wrong) = bundle.formats();
        notes.append(&mut wrong);
        let symbols = Moved::new(bundle, boot, notes);
        let is_same_boot = symbols.kernel == 0;
        let printk = bundle.printk_formats().into_iter();
        let printk_formats = printk.map(|(address, text)| (address.wrapping_add(symbols.kernel), text)).collect();
        Self {
            uname: bundle.uname(),
            formats,
            // Process ids of another boot have other names.
            comms: if is_same_boot { bundle.comms() } else { BTreeMap::new() },
            tgids: if is_same_boot { bundle.tgids() } else { BTreeMap::new() },
            printk_formats,
            symbols: Arc::new(symbols),
            clocks: bundle.clocks(),
        }
    }
}

/// The symbols of a bundle at the addresses of another boot of the same kernel.
struct Moved {
    listed: lastwords_formats::ftrace::dat::Listed,
    /// Added to the addresses of the kernel's own symbols.
    kernel: u64,
    /// By module: added to the addresses of its symbols.
    modules: BTreeMap<String, u64>,
}

impl Moved {
    fn new(bundle: &Bundle, boot: &Boot, notes: &mut Vec<String>) -> Self {
        let listed = bundle.kallsyms();
        let mut places = TEXT_SYMBOLS.map(|_| None);
        listed.each(&mut |row| {
            let place = TEXT_SYMBOLS.iter().position(|name| row.module.is_none() && *name == row.name);
            place.and_then(|place| places.get_mut(place)).into_iter().for_each(|place| *place = Some(row.address));
        });
        let kernel = match (boot.text_address, places.into_iter().flatten().next()) {
            (Some(there), Some(here)) => there.wrapping_sub(here),
            (Some(_), None) => {
                notes.push("the bundle's symbols have no address that the region could be compared with: they are taken as they are".into());
                0
            }
            (None, _) => 0,
        };
        let there: BTreeMap<&str, u64> =
            boot.modules.iter().map(|module| (module.name.as_str(), module.address)).collect();
        let moved = bundle
            .modules()
            .into_iter()
            .filter_map(|(name, here)| Some((there.get(name.as_str())?.wrapping_sub(here), name)));
        let modules = moved.map(|(delta, name)| (name, delta)).collect();
        Self { listed, kernel, modules }
    }

    fn delta(&self, module: Option<&str>) -> Option<u64> {
        match module {
            None => Some(self.kernel),
            // Where the region lists no modules, they are where the bundle has them only in the same boot.
            Some(module) => self.modules.get(module).copied().or_else(|| (self.kernel == 0).then_some(0)),
        }
    }
}

impl Symbols for Moved {
    fn at(&self, address: u64) -> Option<Symbol> {
        let of_kernel = self.listed.at(address.wrapping_sub(self.kernel)).filter(|symbol| symbol.module.is_none());
        of_kernel.or_else(|| {
            let candidates = self.modules.values().chain((self.kernel == 0).then_some(&0));
            let at = |delta: &u64| self.listed.at(address.wrapping_sub(*delta)).map(|symbol| (*delta, symbol));
            let is_right = |(delta, symbol): &(u64, Symbol)| {
                symbol.module.is_some() && self.delta(symbol.module.as_deref()) == Some(*delta)
            };
            candidates.filter_map(at).find(is_right).map(|(_, symbol)| symbol)
        })
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        self.listed.each(&mut |row| {
            // Absolute symbols and offsets in per-CPU memory do not move.
            let delta = if row.address >> 63 == 1 { self.delta(row.module) } else { Some(0) };
            delta.into_iter().for_each(|delta| each(SymbolRow { address: row.address.wrapping_add(delta), ..row }));
        });
    }
}
