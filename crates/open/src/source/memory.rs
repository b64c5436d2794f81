//! Opens memory: of a machine or of a process, whatever contains it. It reads each file once.

use super::lttng::of_user;
use super::{
    FileKind, LTTNG, Location, Opening, Opens, Place, kernel, persistent, sessions, sniff,
};
use crate::{Opened, Options, RawRun, chain};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::{self, Physical};
use lastwords_image::{self as image, ImageKind};
use lastwords_kernel::find;
use lastwords_lttng::user;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory of a machine or of a process, whatever contains it: what every file is taken for that is
/// of no other kind.
pub(crate) static MEMORY: Place = Place {
    inputs: &["a process core", "a kernel crash dump", "raw memory (--raw)"],
    files: &[
        FileKind {
            words: "zstd data",
            begins: |head, _| head.starts_with(b"\x28\xb5\x2f\xfd"),
            opens: Opens::Place,
        },
        FileKind { words: "an ELF core", begins: |head, _| is_core(head), opens: Opens::Place },
        // A form that cannot be read is refused by its name when it is opened.
        FileKind {
            words: "a kernel crash dump",
            begins: |head, _| {
                vmcore::MAGICS.iter().any(|magic| head.starts_with(magic))
                    || vmcore::is_foreign(head)
            },
            opens: Opens::Place,
        },
    ],
    is_folder: |_| false,
    open,
};

/// Returns true for the first bytes of a core, of a process or of a machine.
fn is_core(head: &[u8]) -> bool {
    // ET_CORE of `e_type`, in either byte order.
    const CORES: [&[u8]; 2] = [&[4, 0], &[0, 4]];
    head.starts_with(b"\x7fELF") && head.get(16..18).is_some_and(|kind| CORES.contains(&kind))
}

fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, budget, opened, .. } = opening;
    let memory = match image_of(location, options, budget)? {
        Image::Machine(memory) => memory,
        Image::Container(container) => return of_container(container, opening),
    };
    let (physical, found) = *memory;
    let path = &location.shown;
    let done = found.and_then(|found| of_kernels(path, &physical, found, options, budget, opened));
    let done =
        done.or_else(|error| without_kernel(path, &physical, error, options, budget, opened));
    // Pages that are in another part are no damage.
    done.map_err(|error| match physical.part_of_split() {
        Some(note) => error.context(note.to_owned()),
        None => error,
    })
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
        match kernel::open(path, physical, kernel, options, Arc::clone(budget), opened) {
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

/// The image of a location.
pub(crate) enum Image {
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
pub(crate) fn image_of(
    location: &Location,
    options: &Options<'_>,
    budget: &Arc<Budget>,
) -> anyhow::Result<Image> {
    let (path, watch) = (location.path(), options.watch);
    let named = || path.display().to_string();
    let mut physical = None;
    let is_file = location.source.is_none_or(|source| *source == MEMORY);
    if location.is_split {
        let parts: Vec<&Path> = location.open.iter().map(PathBuf::as_path).collect();
        physical = Some(vmcore::open_split(&parts, budget)?);
    } else if is_file && path.is_file() {
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
            return Ok(Image::Machine(Box::new(memory)));
        }
        physical = vmcore::open_physical(path, budget, watch).with_context(named)?;
    }
    if let Some(physical) = physical {
        let found = find::kernel(&physical, budget, watch).map(noted).with_context(named);
        return Ok(Image::Machine(Box::new((physical, found))));
    }
    Ok(Image::Container(sessions::container(location, options, budget)?))
}

/// Opens a container of a process's memory or of regions. All walkers share its image.
fn of_container(container: image::Opened, opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, given, budget, opened, .. } = opening;
    let path = location.path();
    let named = || path.display().to_string();
    let has_streams = match container.kind {
        ImageKind::Core | ImageKind::CompressedCore => true,
        ImageKind::Plain => sniff::is_file_of(path, &LTTNG),
        ImageKind::Folder | ImageKind::Process => false,
    };
    let mut others = Vec::new();
    if has_streams {
        let found = user::image(&container.image, budget, options.watch).with_context(named)?;
        others = of_user(found, given, options, opened);
    }
    sessions::add(container, others, opening)
}

#[cfg(test)]
mod tests {
    use crate::{Memory, Options, open};
    use lastwords_testkit::form::Form;
    use lastwords_testkit::persistent::{Boot, Cpu, SIZE, put, region};

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
