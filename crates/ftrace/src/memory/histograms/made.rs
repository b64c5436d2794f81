//! A kernel whose memory a test makes.

use crate::kernel_memory::Regions;
pub(super) use crate::kernel_memory::TEXT;
use lastwords_kernel::Kernel;
use lastwords_testkit::btf::Writer;

/// The begin of the memory.
pub(super) const BASE: u64 = 0xffff_8880_0000_0000;

/// The types of a kernel. All numbers have eight bytes.
pub(super) struct Types {
    /// Structures, as [`Writer::declare`] takes them.
    pub(super) structures: &'static str,
    /// Enumerations, with their names and values.
    pub(super) enumerations: &'static [(&'static str, &'static [(&'static str, i32)])],
}

/// Memory from [`BASE`] on.
pub(super) struct Made(Regions);

impl Made {
    /// Makes so many bytes that are zero.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Regions([(BASE, vec![0; bytes])].into()))
    }

    pub(super) fn put(&mut self, at: u64, value: u64) {
        self.0.put_u64(at, value);
    }

    pub(super) fn text(&mut self, at: u64, bytes: &[u8]) {
        self.0.put(at, bytes);
    }

    /// Makes bytes read as zero.
    pub(super) fn zero(&mut self, at: u64, bytes: usize) {
        self.0.put(at, &vec![0; bytes]);
    }

    /// Opens the kernel with these types and symbols.
    pub(super) fn kernel(&self, types: &Types, symbols: &[(u64, &str)]) -> Kernel {
        let mut writer = Writer::of_kernel();
        writer.declare(types.structures);
        for (name, values) in types.enumerations {
            writer.enumeration(name, values);
        }
        self.0.clone().open(writer.finish(&[]), symbols)
    }
}
