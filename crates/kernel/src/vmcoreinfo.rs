//! Parses VMCOREINFO: the facts that a kernel writes for tools that read its memory
//! (kernel/vmcore_info.c, `KEY=VALUE` lines).

use lastwords_image::vmcore::Machine;
use std::collections::HashMap;

/// Longest VMCOREINFO that is parsed, bytes; kernels reserve a page for it.
const MOST: usize = 1 << 20;

/// The facts of a VMCOREINFO note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmcoreInfo {
    facts: HashMap<String, String>,
}

impl VmcoreInfo {
    /// Parses the lines. Lines that are not `KEY=VALUE` are skipped. If a key occurs twice, the
    /// last value is used, because a kernel's own text may follow a text that its hypervisor
    /// copied.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let text = bytes.get(..MOST).unwrap_or(bytes);
        let text = text.split(|b| *b == 0).next().unwrap_or_default();
        let lines = text.split(|b| *b == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let facts = lines
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.trim().into(), v.trim().into()));
        Self { facts: facts.collect() }
    }

    /// True if there are no facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// The value of a complete key, such as `OSRELEASE` or `SYMBOL(_stext)`.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.facts.get(key).map(String::as_str)
    }

    /// The kernel's version, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> Option<&str> {
        self.text("OSRELEASE")
    }

    /// The build id of the kernel, in hexadecimal.
    #[must_use]
    pub fn build_id(&self) -> Option<&str> {
        self.text("BUILD-ID")
    }

    /// Size of a page, bytes.
    #[must_use]
    pub fn page_size(&self) -> Option<u64> {
        self.text("PAGESIZE")?.parse().ok().filter(|n: &u64| n.is_power_of_two())
    }

    /// Offset of the kernel's run-time address from its link-time address, bytes.
    #[must_use]
    pub fn kernel_offset(&self) -> Option<u64> {
        hexadecimal(self.text("KERNELOFFSET")?)
    }

    /// The address of a symbol.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u64> {
        hexadecimal(self.within("SYMBOL", name)?)
    }

    /// All symbols and their addresses.
    pub fn symbols(&self) -> impl Iterator<Item = (&str, u64)> {
        self.facts.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("SYMBOL(")?.strip_suffix(')')?;
            Some((name, hexadecimal(value)?))
        })
    }

    /// The offset of a member, `structure.member`, bytes.
    #[must_use]
    pub fn offset(&self, member: &str) -> Option<u64> {
        self.within("OFFSET", member)?.parse().ok()
    }

    /// The size of a structure, bytes.
    #[must_use]
    pub fn size(&self, structure: &str) -> Option<u64> {
        self.within("SIZE", structure)?.parse().ok()
    }

    /// The length of an array, elements.
    #[must_use]
    pub fn length(&self, array: &str) -> Option<u64> {
        self.within("LENGTH", array)?.parse().ok()
    }

    /// A number. Kernels write it in decimal (signed) or in hexadecimal with `0x`; unsigned values
    /// above `i64::MAX` become negative.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        let text = self.within("NUMBER", name)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
            None => text.parse().ok().or_else(|| text.parse().ok().map(u64::cast_signed)),
        }
    }

    /// The machine, recognized by facts that only its kernels write.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        if self.number("phys_base").is_some() {
            Some(Machine::X86_64)
        } else if self.number("kimage_voffset").is_some() {
            Some(Machine::Aarch64)
        } else {
            None
        }
    }

    fn within(&self, kind: &str, name: &str) -> Option<&str> {
        self.text(&format!("{kind}({name})"))
    }
}

/// True if the text is complete: each line, including the last, is `KEY=VALUE` of printable
/// characters and ends with a newline.
#[must_use]
pub fn is_whole(text: &[u8]) -> bool {
    let is_line = |line: &[u8]| {
        let mut halves = line.splitn(2, |byte| *byte == b'=');
        let key = halves.next().unwrap_or_default();
        let value = halves.next();
        !key.is_empty()
            && key.iter().all(u8::is_ascii_graphic)
            && value.is_some_and(|v| !v.iter().any(u8::is_ascii_control))
    };
    text.strip_suffix(b"\n").is_some_and(|lines| lines.split(|byte| *byte == b'\n').all(is_line))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"OSRELEASE=6.12.107\nBUILD-ID=e1b6\nPAGESIZE=4096\nSYMBOL(init_uts_ns)=ffffffff862218a0\n\
        OFFSET(uts_namespace.name)=0\nSIZE(page)=64\nLENGTH(mem_section)=131072\nNUMBER(phys_base)=-396361728\n\
        NUMBER(VMALLOC_START)=0xff50464b00000000\nKERNELOFFSET=3400000\nno line\nCRASHTIME=1700000000\n\0SIZE(page)=1\n";

    #[test]
    fn each_kind_of_line() {
        let info = VmcoreInfo::parse(TEXT);
        assert_eq!(
            (info.release(), info.build_id(), info.page_size()),
            (Some("6.12.107"), Some("e1b6"), Some(4096))
        );
        assert_eq!(info.symbol("init_uts_ns"), Some(0xffff_ffff_8622_18a0));
        assert_eq!((info.offset("uts_namespace.name"), info.size("page")), (Some(0), Some(64)));
        assert_eq!(
            (info.length("mem_section"), info.number("phys_base")),
            (Some(131_072), Some(-396_361_728))
        );
        assert_eq!(
            info.number("VMALLOC_START").map(i64::cast_unsigned),
            Some(0xff50_464b_0000_0000)
        );
        assert_eq!(info.kernel_offset(), Some(0x340_0000));
        assert_eq!((info.symbol("none"), info.number("page")), (None, None));
    }

    #[test]
    fn a_text_is_whole_up_to_its_last_line_end() {
        let text: &[u8] = b"OSRELEASE=6.12.107\nSYMBOL(a)=ff\nOSRELEASE=\n";
        assert!(is_whole(text));
        assert!(
            (1..text.len()).filter(|cut| text[cut - 1] != b'\n').all(|cut| !is_whole(&text[..cut]))
        );
        for damaged in
            [&b""[..], b"\n", b"A=1\n\nB=2\n", b"A=1\nB\n", b"A=\0\nB=2\n", b"=1\n", b"A B=1\n"]
        {
            assert!(!is_whole(damaged), "{damaged:?}");
        }
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..300, flip: u8) {
            let _ = VmcoreInfo::parse(&bytes);
            let mut text = TEXT.to_vec();
            let at = at % text.len();
            text[at] ^= flip;
            let info = VmcoreInfo::parse(&text);
            let _ = (info.page_size(), info.number("phys_base"), info.symbol("init_uts_ns"), info.kernel_offset());
        }
    }
}
