//! Finds out which flags a kernel's lines show. Distributions add flags to older kernels, so that
//! the version does not tell.

use crate::FlagColumns;
use lastwords_kernel::Kernel;

/// The enumerator of the flag for disabled bottom halves, and one that all kernels have beside it
/// (`enum trace_flag_type`).
const BOTTOM_HALVES: &str = "TRACE_FLAG_BH_OFF";
const ANY_FLAG: &str = "TRACE_FLAG_IRQS_OFF";
/// A part of the header's text for the depth to which migration is disabled
/// (`print_func_help_header_irq`).
const MIGRATION: &[u8] = b"=> migrate-disable";
/// Most bytes of read-only data that are searched, and the bytes that are read at once.
const CONSTANTS_MAX: u64 = 64 << 20;
const STEP: usize = 1 << 20;

/// The flags that the kernel shows. Where its types and constants do not tell, those of its
/// version.
pub(super) fn read(kernel: &Kernel) -> FlagColumns {
    let of_release = FlagColumns::of_release(&kernel.uname().unwrap_or_default().release);
    let has = |name| kernel.types.enum_value(name).is_some();
    choose(has(ANY_FLAG).then(|| has(BOTTOM_HALVES)), || prints(kernel, MIGRATION), of_release)
}

/// The flags by what the types and the constants tell, or else by the version.
fn choose(
    bottom_halves: Option<bool>,
    migration: impl FnOnce() -> Option<bool>,
    of_release: FlagColumns,
) -> FlagColumns {
    let bottom_halves = bottom_halves.unwrap_or(of_release.bottom_halves);
    // Kernels that show disabled bottom halves show migration too.
    let migration = bottom_halves || migration().unwrap_or(of_release.migration);
    FlagColumns { migration, bottom_halves }
}

/// True if the kernel's read-only data has a text; none if it does not, and a part of the data is
/// missing.
fn prints(kernel: &Kernel, text: &[u8]) -> Option<bool> {
    let (begin, end) = (kernel.symbol("__start_rodata").ok()?, kernel.symbol("__end_rodata").ok()?);
    let len = end.saturating_sub(begin).min(CONSTANTS_MAX);
    let (mut is_whole, mut bytes) = (len > 0, Vec::new());
    for from in (0..len).step_by(STEP) {
        // Pieces overlap, so that no text is cut.
        let size = (STEP.saturating_add(text.len()) as u64).min(len.saturating_sub(from));
        bytes.resize(usize::try_from(size).unwrap_or_default(), 0);
        match kernel.memory.read(begin.wrapping_add(from), &mut bytes) {
            Ok(()) if memchr::memmem::find(&bytes, text).is_some() => return Some(true),
            read => is_whole &= read.is_ok(),
        }
    }
    is_whole.then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A distribution's 5.14 may show what 5.15 shows; the version counts only where the dump does
    /// not tell.
    #[test]
    fn the_dump_counts_before_the_version() {
        let columns = |migration, bottom_halves| FlagColumns { migration, bottom_halves };
        let of = |release| FlagColumns::of_release(release);
        assert_eq!(choose(Some(false), || Some(true), of("5.14.0-427.el9")), columns(true, false));
        assert_eq!(
            choose(Some(false), || Some(false), of("5.10.0-46-cloud")),
            columns(false, false)
        );
        assert_eq!(choose(Some(true), || None, of("5.14.0-570.el9")), columns(true, true));
        assert_eq!(choose(None, || None, of("5.14.0-1059-oem")), columns(false, false));
        assert_eq!(choose(None, || None, of("6.1.0")), columns(true, true));
    }
}
