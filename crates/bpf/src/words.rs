//! The kernel's words for kinds of programs, maps and links: its own enumerations.

use lastwords_kernel::btf::Types;
use std::collections::HashMap;

/// Words by their numbers.
pub(crate) struct Words {
    programs: HashMap<i64, String>,
    maps: HashMap<i64, String>,
    links: HashMap<i64, String>,
}

impl Words {
    pub(crate) fn new(types: &Types) -> Self {
        let of = |name, prefix: &str| {
            let mut words = HashMap::new();
            for (word, number) in types.enumeration(name) {
                // Later enumerators with the number of another are aliases.
                let word = word.strip_prefix(prefix).unwrap_or(&word).to_lowercase();
                words.entry(number).or_insert(word);
            }
            words
        };
        Self {
            programs: of("bpf_prog_type", "BPF_PROG_TYPE_"),
            maps: of("bpf_map_type", "BPF_MAP_TYPE_"),
            links: of("bpf_link_type", "BPF_LINK_TYPE_"),
        }
    }

    pub(crate) fn program(&self, number: u64) -> String {
        word(&self.programs, number)
    }

    pub(crate) fn map(&self, number: u64) -> String {
        word(&self.maps, number)
    }

    pub(crate) fn link(&self, number: u64) -> String {
        word(&self.links, number)
    }
}

/// Returns a word, or the number of a kind that the kernel does not name.
fn word(words: &HashMap<i64, String>, number: u64) -> String {
    let known = i64::try_from(number).ok().and_then(|number| words.get(&number));
    known.cloned().unwrap_or_else(|| number.to_string())
}
