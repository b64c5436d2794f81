//! Rules that hide values by the names of their fields, and what is recorded instead of a hidden
//! value.
//!
//! The rules are those of the process: of all its sessions ([`Builder`]) and of its environment.
//! They are never removed, so that no session gets a value that another one hides. A callsite
//! applies them when it is evaluated, not for each event.

use std::fmt::{self, Display, Write as _};
#[allow(deprecated, reason = "no other hasher of the standard library takes a key")]
use std::hash::{Hasher as _, SipHasher};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use rustix::rand::{GetRandomFlags, getrandom};

use super::Builder;

/// What is recorded instead of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// A keyed hash of its text, so that equal values can be matched.
    Hashed,
    /// The fact alone that it is secret. Of several rules for a field, this one counts.
    Secret,
}

/// A rule: fields whose names match the glob are hidden in this way.
#[derive(Debug)]
struct Rule {
    glob: String,
    way: Way,
    /// Number of the rules up to this one.
    turn: u32,
    next: Option<&'static Rule>,
}

/// The rules of this process, newest first. A starting session adds rules (Release), and callsites
/// read them (Acquire).
static RULES: AtomicPtr<Rule> = AtomicPtr::new(std::ptr::null_mut());

/// The key of the hashes; none if the system gives no random bytes (seccomp). It is only in the
/// memory of this process, and of its forked children.
static KEY: OnceLock<Option<[u64; 2]>> = OnceLock::new();

fn key() -> Option<[u64; 2]> {
    *KEY.get_or_init(|| {
        let mut words = [[0; 8]; 2];
        let read = getrandom(words.as_flattened_mut(), GetRandomFlags::empty());
        (read == Ok(16)).then(|| words.map(u64::from_ne_bytes))
    })
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    // SAFETY: only pointers to rules that live for ever are stored.
    let newest = unsafe { RULES.load(Acquire).as_ref::<'static>() };
    std::iter::successors(newest, |rule| rule.next)
}

/// Adds the rules of a builder that are new. Returns true if there were any. It also makes the key,
/// so that no event has to.
pub(crate) fn add(builder: &Builder) -> bool {
    key();
    let mut is_new = false;
    for (glob, way) in &builder.hidden {
        while !rules().any(|rule| rule.glob == *glob && rule.way == *way) {
            let (next, turn) = (rules().next(), turn() + 1);
            let rule = Rule { glob: glob.clone(), way: *way, turn, next };
            let new = Box::leak(Box::new(rule));
            let before =
                next.map_or(std::ptr::null_mut(), |rule| std::ptr::from_ref(rule).cast_mut());
            // If another thread added a rule, the loop looks again whether this one is there.
            is_new |= RULES.compare_exchange(before, new, AcqRel, Acquire).is_ok();
        }
    }
    is_new
}

/// Returns the number of rules.
pub(crate) fn turn() -> u32 {
    rules().next().map_or(0, |rule| rule.turn)
}

/// Returns how the values of a field are hidden, if a rule hides them.
pub(crate) fn way(field: &str) -> Option<Way> {
    way_by(turn(), field)
}

/// Does the same by the first rules, `turn` of them.
pub(crate) fn way_by(turn: u32, field: &str) -> Option<Way> {
    let first = rules().filter(|rule| rule.turn <= turn);
    first.filter(|rule| lastwords_glob::matches(&rule.glob, field)).map(|rule| rule.way).max()
}

/// The text of a secret value.
const SECRET: &[u8] = b"<secret>";
/// Size of the text of a hash: `#` and 16 hexadecimal digits.
const HASH_LEN: usize = 17;

/// The text that is recorded instead of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    text: [u8; HASH_LEN],
    len: u8,
}

impl Mark {
    /// Returns what is recorded of a value. `text` formats it, if it is hashed.
    pub(crate) fn new(way: Way, text: fmt::Arguments<'_>) -> Self {
        match way {
            Way::Secret => Self::secret(),
            Way::Hashed => {
                let mut hasher = Hashing::new();
                // If formatting fails, the part written so far is hashed.
                let _ = hasher.write_fmt(text);
                hasher.mark()
            }
        }
    }

    pub(crate) fn secret() -> Self {
        let mut text = [0; HASH_LEN];
        text[..SECRET.len()].copy_from_slice(SECRET);
        Self { text, len: SECRET.len() as u8 }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// A keyed hash (SipHash) of a text that comes in pieces. It depends on the text alone, not on the
/// pieces. Without a key, the text is as secret as others.
#[allow(deprecated, reason = "no other hasher of the standard library takes a key")]
pub(crate) struct Hashing(Option<SipHasher>);

impl Hashing {
    #[allow(deprecated, reason = "no other hasher of the standard library takes a key")]
    pub(crate) fn new() -> Self {
        Self(key().map(|[one, other]| SipHasher::new_with_keys(one, other)))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.write(bytes);
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        let Some(hasher) = &self.0 else { return Mark::secret() };
        let (hash, mut text) = (hasher.finish(), [b'#'; HASH_LEN]);
        for (digit, at) in text[1..].iter_mut().zip((0..16).rev()) {
            *digit = b"0123456789abcdef"[(hash >> (4 * at)) as usize & 0xf];
        }
        Mark { text, len: HASH_LEN as u8 }
    }
}

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

impl Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_the_text_alone() {
        let whole = Mark::new(Way::Hashed, format_args!("Ada Lovelace"));
        let mut pieces = Hashing::new();
        ["A", "da Love", "", "lace"].iter().for_each(|piece| pieces.add(piece.as_bytes()));
        assert_eq!(pieces.mark().as_str(), whole.as_str());
        assert_eq!(whole.as_str().len(), HASH_LEN);
        assert!(whole.as_str().starts_with('#') && !whole.as_str().contains("Ada"));
        let other = Mark::new(Way::Hashed, format_args!("Ada Lovelacf"));
        assert_ne!(other.as_str(), whole.as_str());
        assert_eq!(Mark::new(Way::Secret, format_args!("x")).as_str(), "<secret>");
        // Without the key, nobody computes the hash.
        let mut unkeyed = std::hash::DefaultHasher::new();
        unkeyed.write(b"Ada Lovelace");
        assert_ne!(whole.as_str(), format!("#{:016x}", unkeyed.finish()));
    }
}
