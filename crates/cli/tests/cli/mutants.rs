//! Random damage to inputs of all kinds: each verb ends within the limits of [`crate::crafted`].
//! `LASTWORDS_MUTANTS` is their number, `LASTWORDS_SEED` the first seed; `LASTWORDS_CASES`, a
//! folder of files and folders, adds inputs.

use crate::crafted::run;
use crate::support::{Place, entries, small};
use lastwords_testkit::random::Random;
use std::path::{Path, PathBuf};

/// Mutants in CI.
const IN_CI: u64 = 40;

/// An input's files: path below the input, or nothing where it is a file itself.
type Files = Vec<(PathBuf, Vec<u8>)>;

fn files(input: &Path) -> Files {
    let (mut files, mut left) = (Vec::new(), vec![input.to_path_buf()]);
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(entries(&path));
        } else {
            let below = path.strip_prefix(input).expect("below it").to_path_buf();
            files.push((below, std::fs::read(&path).expect("a file")));
        }
    }
    files.sort();
    files
}

/// A session, a core of it, CTF of both versions with an index file, trace.dat files, crash dumps;
/// with names.
fn inputs(place: &Place) -> Vec<(String, Files)> {
    let core = small(place, "session", 0).core();
    std::fs::write(place.at("core"), core).expect("written");
    place.ok(&["recover", "session", "-o", "ctf"]);
    place.ok(&["recover", "session", "--to", "ctf2", "-o", "ctf2"]);
    let mut paths: Vec<PathBuf> =
        ["session", "core", "ctf", "ctf2"].iter().map(|name| place.at(name)).collect();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let added = std::env::var_os("LASTWORDS_CASES").map(PathBuf::from);
    for folder in [corpus.join("trace_dat"), corpus.join("vmcore")].into_iter().chain(added) {
        paths.extend(entries(&folder));
    }
    paths.sort();
    paths
        .iter()
        .map(|path| (path.file_name().expect("a name").display().to_string(), files(path)))
        .collect()
}

fn write(files: &Files, input: &Path) {
    for (below, bytes) in files {
        let path =
            if below.as_os_str().is_empty() { input.to_path_buf() } else { input.join(below) };
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
}

/// Changes one of the files in one to four places.
fn damage(files: &mut Files, rng: &mut Random) {
    let mut below = |n: usize| rng.below(n as u64) as usize;
    let chosen = below(files.len());
    let Some((_, bytes)) = files.get_mut(chosen) else { return };
    for _ in 0..=below(4) {
        if bytes.is_empty() {
            return;
        }
        let (at, other) = (below(bytes.len()), below(bytes.len()));
        let len = (1 << below(12)).min(bytes.len() - at.max(other));
        let word = [1, 2, 4, 8][below(4)].min(bytes.len() - at);
        let edges = [
            0,
            1,
            7,
            0x7f,
            0xff,
            1 << 16,
            0x7fff_ffff,
            0xffff_ffff,
            1 << 40,
            u64::MAX / 2,
            u64::MAX - 7,
        ];
        match below(8) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << below(8),
            2 => bytes[at] = below(256) as u8,
            3 => bytes[at..at + word]
                .copy_from_slice(&edges[below(edges.len())].to_le_bytes()[..word]),
            4 => bytes[at..at + word]
                .copy_from_slice(&edges[below(edges.len())].to_be_bytes()[8 - word..]),
            5 => bytes.copy_within(at..at + len, other),
            // A part comes twice, or not at all.
            6 => drop(bytes.splice(at..at, bytes[at..at + len].to_vec())),
            _ => drop(bytes.drain(at..at + len)),
        }
    }
}

#[test]
fn damaged_inputs_end_within_limits() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (count, first) =
        (number("LASTWORDS_MUTANTS").unwrap_or(IN_CI), number("LASTWORDS_SEED").unwrap_or(1));
    let place = Place::new();
    let inputs = inputs(&place);
    let mut wrong = Vec::new();
    for seed in first..first + count {
        let mut rng = Random(seed);
        let (name, mut files) = inputs[seed as usize % inputs.len()].clone();
        damage(&mut files, &mut rng);
        let mutant = place.at("mutant");
        write(&files, &mutant);
        let found = run(&place, &format!("seed {seed}, {name}"), &mutant);
        if !found.is_empty() {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutant-{seed}"));
            write(&files, &kept);
            println!("{}: {found:#?}", kept.display());
        }
        wrong.extend(found);
        std::fs::remove_dir_all(&mutant)
            .or_else(|_| std::fs::remove_file(&mutant))
            .expect("removed");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
