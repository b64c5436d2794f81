//! Opens one location. It reads each file once, whatever the file holds.

use crate::locate::{Location, LocationKind};
use crate::lttng::{self, GivenMetadata};
use crate::reboot::PersistentInstance;
use crate::{
    Body, Opened, Options, Origin, RawRun, carve, chain, machine, persistent, session, sniff, tail,
};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_ctf::read;
use lastwords_image::vmcore::{self, Physical};
use lastwords_image::{self as image, Kind};
use lastwords_kernel::find;
use lastwords_lttng::user;
use lastwords_session::ReadLimit;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The memory of the running kernel.
const KCORE: &str = "/proc/kcore";

/// Opens a location, and adds its traces.
///
/// # Errors
/// The location cannot be read, or nothing is in it.
pub(super) fn open(
    location: &Location,
    options: &Options<'_>,
    given: &GivenMetadata,
    limit: Option<ReadLimit<'_>>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    // All work on a location shares one budget. Each file that is opened adds to it by its size.
    let budget = &Arc::new(Budget::default().times(options.budget));
    match location.kind {
        _ if options.carve => carve::open(location, options, given, budget, opened),
        LocationKind::File if sniff::of_file(location.path()) == Some(sniff::Kind::TraceDat) => {
            machine::open_dat(location.path(), options, budget, opened)
        }
        LocationKind::File if sniff::of_file(location.path()) == Some(sniff::Kind::Persistent) => {
            persistent::open(location.path(), options, budget, opened)
        }
        LocationKind::File if may_be_region(location, options) => {
            persistent::open(location.path(), options, budget, opened)
        }
        LocationKind::Session | LocationKind::File | LocationKind::Split => {
            match source(location, options, budget)? {
                Source::Machine(memory) => {
                    let (physical, found) = *memory;
                    let path = &location.shown;
                    let done = found.and_then(|found| {
                        of_kernels(path, &physical, found, options, budget, opened)
                    });
                    let done = done.or_else(|error| {
                        without_kernel(path, &physical, error, options, budget, opened)
                    });
                    // Pages that are in another part are no damage.
                    done.map_err(|error| match physical.part_of_split() {
                        Some(note) => error.context(note.to_owned()),
                        None => error,
                    })
                }
                Source::Container(container) => {
                    of_container(location, container, options, given, budget, limit, opened)
                }
            }
        }
        LocationKind::Instance => of_instance(location, options, budget, opened),
        LocationKind::Lttng => of_lttng(location, options, given, budget, opened),
        LocationKind::Ctf => of_ctf(location.path(), options, budget, opened),
    }
}

/// Opens the first kernel of a memory whose tracer can be read. Notes name the kernels before it
/// and behind it.
///
/// # Errors
/// The tracer of no kernel can be read.
fn of_kernels(
    path: &Path,
    physical: &Physical,
    found: find::FoundKernel,
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let mut failures: Vec<(String, anyhow::Error)> = Vec::new();
    let mut next = Some(found);
    while let Some(mut kernel) = next.take() {
        let (words, mut others) = (kernel.words(), std::mem::take(&mut kernel.others).into_iter());
        kernel.notes.extend(
            failures.iter().map(|(words, error)| format!("{words} is not read: {}", chain(error))),
        );
        match machine::open_memory(path, physical, kernel, options, Arc::clone(budget), opened) {
            Ok(()) => return Ok(()),
            Err(error) => failures.push((words, error)),
        }
        next = others
            .next()
            .map(|kernel| noted(find::FoundKernel { others: others.collect(), ..kernel }));
    }
    let mut failures = failures.into_iter();
    let (words, first) = failures.next().context("no kernel")?;
    let also = failures.map(|(words, error)| format!("; {words}: {}", chain(&error)));
    let also: String = also.collect();
    Err(if also.is_empty() { first } else { anyhow::anyhow!("{words}: {}{also}", chain(&first)) })
}

/// Adds a note that names the kernels that are in a memory beside the one that is read.
fn noted(mut found: find::FoundKernel) -> find::FoundKernel {
    let others: Vec<String> = found.others.iter().map(find::FoundKernel::words).collect();
    if !others.is_empty() {
        found.notes.push(format!(
            "the memory has several kernels, of which some may be of an earlier boot: {} is read, and not {}; --vmlinux FILE chooses the \
             first kernel of that file's build",
            found.words(),
            others.join("; ")
        ));
    }
    found
}

/// Opens a persistent instance of the running kernel, given by its folder in tracefs. It is read in
/// memory: `trace` in tracefs does not have the events as they are in memory, and reading
/// `trace_pipe_raw` consumes them. Memory that the command line keeps from the kernel at an address
/// is read there, other memory through the kernel's own.
fn of_instance(
    location: &Location,
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let shown = || {
        format!(
            "{}: the instance is read in the kernel's memory, {KCORE}, which root alone may read and not every kernel has",
            location.shown.display()
        )
    };
    let name = tail::name_of(location.path());
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let reserved = PersistentInstance::all_of_command_line(&line)
        .into_iter()
        .find(|instance| instance.name == name);
    let options = Options { names: vec![name], ..options.clone() };
    if let Some((address, len)) = reserved.and_then(|instance| instance.address()) {
        return persistent::open_running(&location.shown, (address, len), &options, budget, opened);
    }
    let memory =
        Location { open: vec![KCORE.into()], kind: LocationKind::File, ..location.clone() };
    let Source::Machine(machine) = source(&memory, &options, budget).with_context(shown)? else {
        bail!(shown())
    };
    let (physical, found) = *machine;
    machine::open_memory(
        &location.shown,
        &physical,
        found.with_context(shown)?,
        &options,
        Arc::clone(budget),
        opened,
    )
}

/// Reads the persistent ring buffers in a memory without a readable kernel. They do not need the
/// kernel.
fn without_kernel(
    path: &Path,
    physical: &Physical,
    error: anyhow::Error,
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    match persistent::find(&physical.image, None, options, budget) {
        Ok(found) if !found.is_empty() => {
            persistent::add(path, found, options, opened);
            opened.notes.push(format!("only persistent ring buffers are read: {}", chain(&error)));
            Ok(())
        }
        Ok(_) => Err(error),
        Err(other) => Err(error.context(other)),
    }
}

/// Returns true if a bundle was given and the file's kind is unknown: it may be a persistent ring
/// buffer with a damaged beginning.
fn may_be_region(location: &Location, options: &Options<'_>) -> bool {
    let is_memory = options.memory.raw.is_some();
    !options.bundle.is_empty()
        && !is_memory
        && location.path().is_file()
        && sniff::of_file(location.path()).is_none()
}

/// The image of a location.
pub(super) enum Source {
    /// The memory of a machine, with its kernel or the reason why none was found.
    Machine(Box<(Physical, anyhow::Result<find::FoundKernel>)>),
    /// The memory of a process, or regions of sessions.
    Container(image::Opened),
}

/// Opens the files of a location: as raw memory if the options say so, as a dump of a machine, or
/// else as a container.
///
/// # Errors
/// The files cannot be read.
pub(super) fn source(
    location: &Location,
    options: &Options<'_>,
    budget: &Arc<Budget>,
) -> anyhow::Result<Source> {
    let (path, watch) = (location.path(), options.watch);
    let named = || path.display().to_string();
    let mut physical = None;
    if location.kind == LocationKind::Split {
        let parts: Vec<&Path> = location.open.iter().map(PathBuf::as_path).collect();
        physical = Some(vmcore::open_split(&parts, budget)?);
    } else if location.kind == LocationKind::File && path.is_file() {
        if let Some(map) = &options.memory.raw {
            RawRun::check(map).with_context(named)?;
            let memory = match find::raw(path, map, budget, watch) {
                Ok((physical, found)) => (physical, Ok(noted(found))),
                Err(error) => {
                    if let Ok(Some(dump)) = vmcore::open_physical(path, budget, watch) {
                        let words = dump.format.words();
                        let article = if words.starts_with('E') { "an" } else { "a" };
                        bail!("{} is {article} {words}: leave out --raw", named());
                    }
                    (
                        vmcore::open_raw(path, map, budget).with_context(named)?,
                        Err(error).with_context(named),
                    )
                }
            };
            return Ok(Source::Machine(Box::new(memory)));
        }
        physical = vmcore::open_physical(path, budget, watch).with_context(named)?;
    }
    if let Some(physical) = physical {
        let found = find::kernel(&physical, budget, watch).map(noted).with_context(named);
        return Ok(Source::Machine(Box::new((physical, found))));
    }
    Ok(Source::Container(image::open(path, budget, watch).with_context(named)?))
}

/// Opens a container of a process's memory or of regions. All walkers share its image.
fn of_container(
    location: &Location,
    container: image::Opened,
    options: &Options<'_>,
    given: &GivenMetadata,
    budget: &Arc<Budget>,
    limit: Option<ReadLimit<'_>>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let path = location.path();
    let named = || path.display().to_string();
    let has_streams = match container.kind {
        Kind::Core | Kind::CompressedCore => true,
        Kind::Plain => sniff::is_lttng(path),
        Kind::Folder | Kind::Process => false,
    };
    let mut others = Vec::new();
    if has_streams {
        let found = user::image(&container.image, budget, options.watch).with_context(named)?;
        others = of_user(found, given, options, opened);
    }
    session::add(location, container, others, options, budget, limit, opened)
}

/// Adds metadata to streams of LTTng's user-space tracer, and returns their traces.
fn of_user(
    mut found: user::Sessions,
    given: &GivenMetadata,
    options: &Options<'_>,
    opened: &mut Opened,
) -> Vec<(String, Body)> {
    opened.notes.append(&mut found.notes);
    given.give(&mut found.sessions);
    lttng::bodies(found.sessions, options.watch)
}

fn of_lttng(
    location: &Location,
    options: &Options<'_>,
    given: &GivenMetadata,
    budget: &Budget,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let bodies = of_user(lttng::of_folder(location.path(), budget)?, given, options, opened);
    let (path, kind) = (location.shown.clone(), "memory of LTTng's user-space tracer");
    if bodies.is_empty() {
        bail!("{}: no stream of LTTng in it can be read", path.display());
    }
    opened.add(options, Origin { path, kind, core: None, machine: None }, bodies);
    Ok(())
}

fn of_ctf(
    path: &Path,
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let found = read::open(path, budget)?;
    opened.errors.extend(found.faults.into_iter().map(anyhow::Error::from));
    if found.traces.is_empty() {
        return Ok(());
    }
    let bodies = found
        .traces
        .into_iter()
        .map(|trace| (name_of(&trace), Body::Ctf(Arc::new(trace))))
        .collect();
    opened.add(
        options,
        Origin { path: path.to_owned(), kind: "folder of CTF", core: None, machine: None },
        bodies,
    );
    Ok(())
}

/// Returns the name of a trace in a folder of CTF, or else that of the folder.
pub(super) fn name_of(trace: &read::Trace) -> String {
    let path = trace.path.canonicalize().unwrap_or_else(|_| trace.path.clone());
    match trace.name() {
        "" => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Memory, Options, open};
    use lastwords_testkit::persistent::{Boot, Cpu, Form, SIZE, put, region};

    /// Raw memory with two kernels that have no tracer: both are tried, and the error names both
    /// with the places of their VMCOREINFO.
    #[test]
    fn every_kernel_of_raw_memory_is_tried() {
        let mut ram = vec![0; 8 << 20];
        let mut put = |at: usize, bytes: &[u8]| ram[at..at + bytes.len()].copy_from_slice(bytes);
        for (release, image) in [("6.12.1-earlier", 0x20_0000usize), ("6.18.2-running", 0x40_0000)]
        {
            // The top table is 4 KiB into the image, whose 2 MiB are at 0xffffffff81000000.
            let table = |page: usize| ((image + page) as u64 | 3).to_le_bytes();
            put(image + 0x1000 + 511 * 8, &table(0x2000));
            put(image + 0x2000 + 510 * 8, &table(0x3000));
            put(image + 0x3000 + 8 * 8, &(image as u64 | 0x83).to_le_bytes());
            put(image + 0x8000 + 2 * 65, release.as_bytes());
            let text = format!(
                "OSRELEASE={release}\nPAGESIZE=4096\nSYMBOL(init_uts_ns)=ffffffff81007ff8\nOFFSET(uts_namespace.name)=8\n\
                 SYMBOL(swapper_pg_dir)=ffffffff81001000\nNUMBER(phys_base)={}\nNUMBER(pgtable_l5_enabled)=0\n",
                image as i64 - 0x100_0000
            );
            // The text, and its copy in a note, are one kernel.
            put(image + 0x10_0000, text.as_bytes());
            put(image + 0x10_1018, text.as_bytes());
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &ram).unwrap();
        let memory = Memory { raw: Some(Vec::new()), ..Memory::default() };
        let opened =
            open(&[file.path().to_str().unwrap()], &Options { memory, ..Options::default() })
                .unwrap();
        let why = &opened.failures[0].why;
        for words in [
            "6.12.1-earlier, with VMCOREINFO at 0x300000: ",
            "; Linux 6.18.2-running, with VMCOREINFO at 0x500000: ",
        ] {
            assert_eq!(why.matches(words).count(), 1, "{why}");
        }
    }

    /// Raw memory may begin with the remains of a region. The whole region behind them is read.
    #[test]
    fn memory_that_begins_like_a_region_is_searched() {
        let mut page = vec![0; SIZE];
        put(&mut page, 0, 7, 8);
        let cpu = Cpu { order: vec![0, 1, 2], head: 1, commit: 1, pages: [(1, page)].into() };
        let boot = Boot { text: 0xffff_ffff_8000_0000, ..Boot::default() };
        for form in [Form::Common, Form::PerCpu] {
            let region = region(form, &boot, &[cpu.clone(), cpu.clone()]).bytes;
            let mut ram = vec![0; 4 << 20];
            ram[..512].copy_from_slice(&region[..512]);
            ram[2 << 20..][..region.len()].copy_from_slice(&region);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &ram).unwrap();
            let opened = open(&[file.path().to_str().unwrap()], &Options::default()).unwrap();
            let names: Vec<&str> = opened.traces.iter().map(|trace| trace.name.as_str()).collect();
            // What is left of the region at the beginning may be one of its own, without events.
            let of_whole = names.last().copied();
            assert_eq!(
                of_whole,
                Some("persistent@0x200000"),
                "{form:?}: {:?} {:?}",
                opened.failures,
                opened.notes
            );
            assert!(names.len() <= 2, "{names:?}");
            assert!(
                opened.notes.iter().any(|note| note.contains("read as raw memory")),
                "{:?}",
                opened.notes
            );
        }
    }

    #[test]
    fn the_users_budget_pays_for_a_folder_of_ctf() {
        const PACKETS: usize = 1_200_000;
        let folder = tempfile::tempdir().unwrap();
        let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
            stream { packet.context := struct { integer { size = 8; align = 8; } packet_size; }; };";
        std::fs::write(folder.path().join("metadata"), metadata).unwrap();
        // Each packet is the byte that says that it has 8 bits.
        std::fs::write(folder.path().join("stream"), vec![8; PACKETS]).unwrap();
        let opened = |budget| {
            let word = folder.path().to_str().unwrap();
            let opened = open(&[word], &Options { budget, ..Options::default() }).unwrap();
            let packets: usize =
                opened.traces[0].ctf().unwrap().streams.iter().map(|s| s.packets.len()).sum();
            (packets, opened.failures)
        };
        let (packets, failures) = opened(1);
        assert!(
            packets < PACKETS && failures[0].why.contains("exceed the limit"),
            "{packets} {failures:?}"
        );
        assert_eq!(opened(4), (PACKETS, Vec::new()));
    }
}
