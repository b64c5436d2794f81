//! Kernel arguments for a trace instance that outlives a reboot: parses those a kernel was started
//! with, and makes those for this machine.
//!
//! The sources are `/proc/cmdline` and `/proc/iomem`. The functions take their texts, so that a
//! tool can also judge another machine.

use std::ops::Range;

/// The buffer size for each CPU, in bytes, for which [`instance_arguments`] asks.
const BYTES_PER_CPU: u64 = 2 << 20;
/// The smallest size of all buffers together, in bytes, for which [`instance_arguments`] asks.
const LEAST_BYTES: u64 = 12 << 20;
/// The alignment of a range in bytes: a huge page.
const ALIGNMENT: u64 = 2 << 20;
/// The bits of an address that an aligned address can have.
const ALIGNED_BITS: u64 = !(ALIGNMENT - 1);

/// A trace instance whose buffer outlives a reboot (`trace_instance=NAME@PLACE`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentInstance {
    /// The name of the instance.
    pub name: String,
    /// The place of its buffer: a label of `reserve_mem=`, or `ADDRESS:SIZE`.
    pub place: String,
    /// The size of its buffer in bytes. It is unknown if no `reserve_mem=` has the label.
    pub size: Option<u64>,
    /// The buffer has the same address in each boot. `reserve_mem=` ensures that only together
    /// with `nokaslr`.
    pub has_stable_address: bool,
}

impl PersistentInstance {
    /// Finds the first persistent instance in a kernel's command line.
    #[must_use]
    pub fn of_command_line(line: &str) -> Option<Self> {
        Self::all_of_command_line(line).into_iter().next()
    }

    /// Finds all persistent instances in a kernel's command line.
    pub(crate) fn all_of_command_line(line: &str) -> Vec<Self> {
        let values =
            line.split_whitespace().filter_map(|word| word.strip_prefix("trace_instance="));
        values.filter_map(|value| Self::of_argument(value, line)).collect()
    }

    /// Address and size of the buffer in physical memory, if the command line names them.
    pub(crate) fn address(&self) -> Option<(u64, u64)> {
        Some((bytes(self.place.split_once(':')?.0)?, self.size?))
    }

    /// Parses the value of one `trace_instance=` of a command line.
    fn of_argument(value: &str, line: &str) -> Option<Self> {
        let words = || line.split_whitespace();
        let (name, place) = value.split(',').next()?.split_once('@')?;
        let name = name.split('^').next()?;
        let reserved =
            words().filter_map(|word| word.strip_prefix("reserve_mem=")).find_map(|value| {
                let mut parts = value.split(':');
                let (size, _, label) = (parts.next()?, parts.next()?, parts.next()?);
                (label == place).then(|| bytes(size))?
            });
        Some(Self {
            name: name.to_owned(),
            place: place.to_owned(),
            size: reserved.or_else(|| bytes(place.split_once(':')?.1)),
            has_stable_address: reserved.is_none() || words().any(|word| word == "nokaslr"),
        })
    }
}

/// Parses a number of bytes as the kernel does: decimal or hexadecimal, with the suffix K, M or G.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']);
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let unit = match text.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Returns the kernel arguments that give a machine with `cpus` CPUs a persistent instance, and a
/// remark for people.
///
/// On x86-64 the arguments name a free range of `iomem`, the text of `/proc/iomem`. Otherwise, and
/// if no free range is known, the kernel reserves the memory itself (`reserve_mem=`) and must not
/// choose a random address for its own code (`nokaslr`).
#[must_use]
pub fn instance_arguments(cpus: u64, iomem: &str) -> (String, &'static str) {
    let size = cpus.saturating_mul(BYTES_PER_CPU).max(LEAST_BYTES).next_multiple_of(ALIGNMENT);
    let mib = size >> 20;
    match free_range(iomem, size).filter(|_| cfg!(target_arch = "x86_64")) {
        Some(address) => {
            let arguments =
                format!("memmap={mib}M${address:#x} trace_instance=boot_map@{address:#x}:{mib}M");
            (arguments, "GRUB takes the dollar sign as `\\\\\\$` in /etc/default/grub")
        }
        None => {
            let remark = "no free range is known: as root, on x86-64, /proc/iomem tells one, and the address of the kernel may stay random";
            (format!("nokaslr reserve_mem={mib}M:4096:trace trace_instance=boot_map@trace"), remark)
        }
    }
}

/// Returns the address of `size` unused bytes in the largest range of RAM. `iomem` is the text of
/// `/proc/iomem`.
///
/// Firmware and boot loaders put what they load at the ends of a range: the initial file system,
/// for example, which would overwrite the buffer at each boot, and which `/proc/iomem` does not
/// list. So the bytes are the highest below the middle of the range, or, if none are free there,
/// the highest.
#[must_use]
pub fn free_range(iomem: &str, size: u64) -> Option<u64> {
    let row = |line: &str| {
        let (range, what) = line.trim_start().split_once(" : ")?;
        let (begin, last) = range.split_once('-')?;
        let [begin, last] = [begin, last].map(|address| u64::from_str_radix(address, 16).ok());
        Some((begin?..last?.checked_add(1)?, line.starts_with(' '), what.to_owned()))
    };
    let rows: Vec<(Range<u64>, bool, String)> = iomem.lines().filter_map(row).collect();
    let ram = rows.iter().filter(|(_, is_inside, what)| !is_inside && what == "System RAM");
    let (ram, ..) = ram.max_by_key(|(range, ..)| range.end.saturating_sub(range.start))?;
    let used: Vec<&Range<u64>> =
        rows.iter().filter(|(_, is_inside, _)| *is_inside).map(|(range, ..)| range).collect();
    let middle = ram.start.midpoint(ram.end);
    highest_free(ram.start..middle, &used, size).or_else(|| highest_free(ram.clone(), &used, size))
}

/// Returns the highest address of `size` bytes of a range that no range of `used` overlaps.
fn highest_free(range: Range<u64>, used: &[&Range<u64>], size: u64) -> Option<u64> {
    let mut end = range.end;
    loop {
        let begin = end.checked_sub(size)? & ALIGNED_BITS;
        let taken =
            used.iter().filter(|used| used.start < begin.saturating_add(size) && used.end > begin);
        match taken.map(|used| used.start).min() {
            _ if begin < range.start || begin == 0 => return None,
            Some(below) => end = below.min(end.saturating_sub(1)),
            None => return Some(begin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM: &str = "00001000-0009ffff : System RAM\n00100000-7fffffff : System RAM\n  01000000-02ffffff : Kernel code\n\
                         100000000-27fffffff : System RAM\n  27f000000-27fffffff : Crash kernel\n";

    #[test]
    fn instances_of_a_command_line() {
        let of = |line| {
            PersistentInstance::of_command_line(line)
                .map(|i| (i.name, i.size, i.has_stable_address))
        };
        assert_eq!(of("quiet trace_instance=plain"), None);
        let random = "reserve_mem=12M:4096:trace trace_instance=boot_map@trace";
        assert_eq!(of(random), Some(("boot_map".into(), Some(12 << 20), false)));
        let fixed =
            "nokaslr reserve_mem=12M:4096:trace trace_instance=boot_map^traceoff@trace,sched";
        assert_eq!(of(fixed), Some(("boot_map".into(), Some(12 << 20), true)));
        assert_eq!(
            of("trace_instance=b@0x284500000:0x40000"),
            Some(("b".into(), Some(0x40000), true))
        );
        assert_eq!(
            of("reserve_mem=12M:4096:other trace_instance=b@trace"),
            Some(("b".into(), None, true))
        );
    }

    #[test]
    fn a_free_range_is_below_the_middle_and_used_ranges() {
        assert_eq!(free_range(IOMEM, 12 << 20), Some(0x1_c000_0000 - (12 << 20)));
        let used = IOMEM.replace("27f000000-27fffffff", "1bf800000-1cfffffff");
        assert_eq!(free_range(&used, 12 << 20), Some(0x1_bf80_0000 - (12 << 20)));
        // The lower half is too small.
        assert_eq!(free_range(IOMEM, 4 << 30), Some(0x1_7f00_0000));
        assert_eq!(free_range(IOMEM, 1 << 40), None);
        assert_eq!(free_range("00000000-00000000 : System RAM\n", 12 << 20), None);
    }

    #[test]
    fn arguments_give_an_instance_with_a_stable_address() {
        if cfg!(target_arch = "x86_64") {
            let arguments = instance_arguments(4, IOMEM).0;
            assert_eq!(arguments, "memmap=12M$0x1bf400000 trace_instance=boot_map@0x1bf400000:12M");
            assert!(PersistentInstance::of_command_line(&arguments).unwrap().has_stable_address);
        }
        let arguments = instance_arguments(16, "").0;
        assert_eq!(arguments, "nokaslr reserve_mem=32M:4096:trace trace_instance=boot_map@trace");
        assert!(PersistentInstance::of_command_line(&arguments).unwrap().has_stable_address);
    }
}
