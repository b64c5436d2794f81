//! Finds out if a kernel was built with `CONFIG_PREEMPT_VOLUNTARY`. No variable tells that, but in
//! such a kernel functions that may sleep begin with a call that yields the CPU (`might_sleep` in
//! include/linux/kernel.h).

use crate::Symbols;
use lastwords_kernel::Kernel;

/// Name of a function that may sleep, in every kernel.
const SLEEPER: &str = "mutex_lock";
/// Names of the function that is called to yield; the second up to Linux 5.11.
const YIELDS: [&str; 2] = ["__cond_resched", "_cond_resched"];
/// Most bytes of code that are examined.
const CODE_MAX: u64 = 1024;

/// True if the kernel yields where it may sleep.
pub(super) fn is_voluntary(kernel: &Kernel, machine: &str) -> bool {
    let code = || {
        let at = kernel.symbol(SLEEPER).ok()?;
        let mut code = vec![0; usize::try_from(kernel.symbols.at(at)?.size.min(CODE_MAX)).ok()?];
        kernel.memory.read(at, &mut code).ok()?;
        Some((at, code))
    };
    let targets: Vec<u64> = YIELDS.iter().filter_map(|name| kernel.symbol(name).ok()).collect();
    code().is_some_and(|(at, code)| {
        calls(machine, &code, at).iter().any(|target| targets.contains(target))
    })
}

/// Targets of the calls in `code`, which is at address `at`. On x86_64 false targets are among
/// them, because instructions have any length.
fn calls(machine: &str, code: &[u8], at: u64) -> Vec<u64> {
    let target =
        |place: usize, distance: i64| at.wrapping_add(place as u64).wrapping_add_signed(distance);
    match machine {
        "x86_64" => {
            let found = code.windows(5).enumerate().filter_map(|(place, bytes)| {
                let distance =
                    bytes.strip_prefix(&[0xe8])?.first_chunk().copied().map(i32::from_le_bytes)?;
                Some(target(place.saturating_add(5), distance.into()))
            });
            found.collect()
        }
        "aarch64" => {
            let words = code
                .chunks_exact(4)
                .filter_map(|raw| raw.first_chunk().copied().map(u32::from_le_bytes));
            let found = words.enumerate().filter(|(_, word)| word >> 26 == 0b10_0101);
            // A signed distance of 26 bits, in units of 4 bytes.
            let distance = |word: u32| i64::from((word << 6).cast_signed() >> 6).wrapping_mul(4);
            found.map(|(n, word)| target(n.saturating_mul(4), distance(word))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn calls_lead_where_their_distances_say() {
        // mov; call .+0x105; ret.
        let code = [0x89, 0xe5, 0xe8, 0x00, 0x01, 0x00, 0x00, 0xc3];
        assert_eq!(calls("x86_64", &code, 0x1000), [0x1107]);
        // nop; bl back by 8; b forward, which is not a call.
        let words = [0xd503_201fu32, 0x97ff_fffe, 0x1400_0010];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(calls("aarch64", &code, 0x1000), [0xffc]);
        assert!(calls("riscv64", &code, 0x1000).is_empty());
    }
}
