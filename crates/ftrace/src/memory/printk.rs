//! Reads format strings that events name by address, and the key that hashes addresses.

use std::collections::BTreeMap;

use lastwords_bytes::Error as BytesError;
use lastwords_kernel::{Error, Kernel};

/// Most strings of a table that are read.
const STRINGS_MAX: u64 = 1 << 16;

/// Format strings of `trace_printk` and `bputs`, and tracepoint strings, by address.
pub(super) fn formats(kernel: &Kernel) -> Result<BTreeMap<u64, String>, Error> {
    let mut strings = BTreeMap::new();
    let tables = [
        ("__start___trace_bprintk_fmt", "__stop___trace_bprintk_fmt"),
        ("__start___tracepoint_str", "__stop___tracepoint_str"),
    ];
    for (begin, end) in tables {
        let (Ok(begin), Ok(end)) = (kernel.symbol(begin), kernel.symbol(end)) else { continue };
        let word = u64::from(kernel.memory.word_size());
        let count = end.saturating_sub(begin).checked_div(word).unwrap_or(0).min(STRINGS_MAX);
        for n in 0..count {
            let at = kernel
                .memory
                .pointer(begin.wrapping_add(n.saturating_mul(word)))
                .map_err(Error::hole("the table of format strings"))?;
            if at != 0 {
                strings.insert(at, kernel.text(at)?);
            }
        }
    }
    if let (Ok(head), true) = (
        kernel.symbol("trace_bprintk_fmt_list"),
        kernel.types.has_member("trace_bprintk_fmt", "fmt"),
    ) {
        for format in kernel.list(head, "trace_bprintk_fmt", "list")? {
            let at = format?.address("fmt")?;
            strings.insert(at, kernel.text(at)?);
        }
    }
    Ok(strings)
}

/// The key of `%p`; none if the kernel hides no addresses (`no_hash_pointers`).
pub(super) fn pointer_key(kernel: &Kernel) -> Result<Option<[u64; 2]>, Error> {
    if kernel.symbol("no_hash_pointers").is_ok() && kernel.number("no_hash_pointers", 1)? != 0 {
        return Ok(None);
    }
    let at = kernel.symbol("ptr_key")?;
    let word = |offset: u64| {
        kernel.memory.number(at.wrapping_add(offset), 8).map_err(Error::hole("ptr_key"))
    };
    let key = [word(0)?, word(8)?];
    // The kernel sets it at boot. Zero is of a page that reads as zero.
    if key == [0, 0] {
        Err(BytesError::value("ptr_key", at, 0, "a key").into())
    } else {
        Ok(Some(key))
    }
}
