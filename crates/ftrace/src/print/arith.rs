//! The integers of C: types, conversions and operators.

use super::Fault;
use lastwords_bytes::{low_u8, low_u16, low_u32};
use lastwords_trace::integer::extend;

/// An integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Int {
    /// Size in bytes: 1, 2, 4 or 8.
    pub(crate) size: u8,
    /// True for a signed type.
    pub(crate) signed: bool,
}

impl Int {
    pub(crate) const INT: Self = Self { size: 4, signed: true };
    pub(crate) const UINT: Self = Self { size: 4, signed: false };
    pub(crate) const U8: Self = Self { size: 1, signed: false };
    pub(crate) const CHAR: Self = Self { size: 1, signed: true };
    pub(crate) const U64: Self = Self { size: 8, signed: false };
    pub(crate) const S64: Self = Self { size: 8, signed: true };

    /// Returns the type of this size, if there is one.
    pub(crate) fn new(size: u32, signed: bool) -> Option<Self> {
        matches!(size, 1 | 2 | 4 | 8).then_some(Self { size: low_u8(u64::from(size)), signed })
    }

    /// Converts `value` to this type. The result is extended to 64 bits by the type's sign.
    #[inline]
    pub(crate) fn wrap(self, value: u64) -> u64 {
        match (self.size, self.signed) {
            (size @ (1 | 2 | 4), true) => extend(value, size).cast_unsigned(),
            (1, false) => u64::from(low_u8(value)),
            (2, false) => u64::from(low_u16(value)),
            (4, false) => u64::from(low_u32(value)),
            _ => value,
        }
    }

    fn promoted(self) -> Self {
        if self.size < 4 { Self::INT } else { self }
    }

    /// Returns the type in which an operator works on operands of these two types.
    pub(crate) fn common(self, other: Self) -> Self {
        let (a, b) = (self.promoted(), other.promoted());
        match a.size.cmp(&b.size) {
            std::cmp::Ordering::Equal => Self { size: a.size, signed: a.signed && b.signed },
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Less => b,
        }
    }
}

/// Operators on two integers, except `&&` and `||`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Mul,
    Div,
    Rem,
    Add,
    Sub,
    Shl,
    Shr,
    Lt,
    Gt,
    Le,
    Ge,
    Eq,
    Ne,
    And,
    Xor,
    Or,
}

/// A value and its type.
pub(crate) type Typed = (u64, Int);

/// Returns `a op b`.
pub(crate) fn binary(op: Op, a: Typed, b: Typed) -> Result<Typed, Fault> {
    if matches!(op, Op::Shl | Op::Shr) {
        return Ok(shift(op, a, b.0));
    }
    let kind = a.1.common(b.1);
    let (x, y) = (kind.wrap(a.0), kind.wrap(b.0));
    let (i, j) = (x.cast_signed(), y.cast_signed());
    let truth = |t: bool| Ok((u64::from(t), Int::INT));
    let value = match op {
        Op::Mul => x.wrapping_mul(y),
        Op::Add => x.wrapping_add(y),
        Op::Sub => x.wrapping_sub(y),
        Op::Div | Op::Rem if y == 0 => return Err(Fault::Division),
        // Only the smallest number divided by -1 overflows. The result is that of two's complement.
        Op::Div if kind.signed => i.checked_div(j).unwrap_or(i).cast_unsigned(),
        Op::Div => x.checked_div(y).ok_or(Fault::Division)?,
        Op::Rem if kind.signed => i.checked_rem(j).unwrap_or(0).cast_unsigned(),
        Op::Rem => x.checked_rem(y).ok_or(Fault::Division)?,
        Op::And => x & y,
        Op::Xor => x ^ y,
        Op::Or => x | y,
        Op::Eq => return truth(x == y),
        Op::Ne => return truth(x != y),
        Op::Lt => return truth(if kind.signed { i < j } else { x < y }),
        Op::Gt => return truth(if kind.signed { i > j } else { x > y }),
        Op::Le => return truth(if kind.signed { i <= j } else { x <= y }),
        Op::Ge => return truth(if kind.signed { i >= j } else { x >= y }),
        Op::Shl | Op::Shr => return Ok(shift(op, a, b.0)),
    };
    Ok((kind.wrap(value), kind))
}

/// Shifts `a`. The result has the type of the left side. A count that is too large is reduced
/// modulo the width, as processors do.
fn shift(op: Op, a: Typed, count: u64) -> Typed {
    let kind = a.1.promoted();
    let value = kind.wrap(a.0);
    let count = low_u32(count) & (u32::from(kind.size) * 8).saturating_sub(1);
    let shifted = match op {
        Op::Shl => value << count,
        _ if kind.signed => (value.cast_signed() >> count).cast_unsigned(),
        _ => value >> count,
    };
    (kind.wrap(shifted), kind)
}

/// Returns `-a`, `~a` or `+a`.
pub(crate) fn unary(sign: u8, a: Typed) -> Typed {
    let kind = a.1.promoted();
    let value = match sign {
        b'-' => a.0.wrapping_neg(),
        b'~' => !a.0,
        _ => a.0,
    };
    (kind.wrap(value), kind)
}

/// Returns the integer type that some words of C name, or `None` if they name no integer type.
pub(crate) fn named(words: &[&str], word_size: u8) -> Option<Int> {
    let (mut signed, mut size, mut longs, mut seen) = (None, None, 0u32, false);
    for word in words {
        match *word {
            "const" | "volatile" | "__user" | "__kernel" | "register" => continue,
            "unsigned" => signed = Some(false),
            "signed" | "__signed__" => signed = Some(true),
            "long" => longs = longs.saturating_add(1),
            "char" => size = Some((1, true)),
            "short" => size = Some((2, true)),
            "int" if size.is_none() => size = Some((4, true)),
            "int" => {}
            "enum" => size = Some((4, false)),
            other => match typedef(other, word_size) {
                Some((bytes, sign)) => size = Some((bytes, sign)),
                // `enum name`: any word may follow.
                None if words.contains(&"enum") => {}
                None => return None,
            },
        }
        seen = true;
    }
    let (bytes, sign) = match (longs, size) {
        (1, _) => (word_size, true),
        (2.., _) => (8, true),
        (_, Some(found)) => found,
        _ => (4, true),
    };
    seen.then_some(Int { size: bytes, signed: signed.unwrap_or(sign) })
}

fn typedef(name: &str, word_size: u8) -> Option<(u8, bool)> {
    Some(match name {
        "u8" | "__u8" | "uint8_t" | "bool" | "_Bool" | "u_char" | "unchar" | "blk_status_t"
        | "blk_mode_t" => (1, false),
        "s8" | "__s8" | "int8_t" => (1, true),
        "u16" | "__u16" | "uint16_t" | "__be16" | "__le16" | "umode_t" | "mode_t" | "ushort"
        | "sa_family_t" => (2, false),
        "s16" | "__s16" | "int16_t" => (2, true),
        "u32" | "__u32" | "uint32_t" | "__be32" | "__le32" | "dev_t" | "gfp_t" | "fmode_t"
        | "uid_t" | "gid_t" | "slab_flags_t" | "uint" | "blk_opf_t" | "vm_fault_t"
        | "isolate_mode_t" | "__poll_t" | "projid_t" | "qid_t" | "xfs_agnumber_t"
        | "xfs_agblock_t" | "xfs_extlen_t" | "u_int" | "__wsum" | "nlink_t" | "u_int32_t" => {
            (4, false)
        }
        "s32" | "__s32" | "int32_t" | "pid_t" | "clockid_t" | "key_serial_t" | "key_t"
        | "timer_t" | "__kernel_pid_t" => (4, true),
        "u64" | "__u64" | "uint64_t" | "__be64" | "__le64" | "sector_t" | "blkcnt_t"
        | "netdev_features_t" | "async_cookie_t" | "xfs_ino_t" | "xfs_fsblock_t"
        | "xfs_daddr_t" | "nfs4_verifier" | "gpa_t" | "gfn_t" | "hpa_t" | "kvm_pfn_t" => (8, false),
        "s64" | "__s64" | "int64_t" | "loff_t" | "ktime_t" | "time64_t" | "xfs_lsn_t"
        | "xfs_off_t" | "xfs_fsize_t" => (8, true),
        "dma_addr_t" | "phys_addr_t" | "resource_size_t" => (8, false),
        "size_t" | "uintptr_t" | "ulong" | "pgoff_t" | "ino_t" | "pteval_t" | "pmdval_t"
        | "pudval_t" | "p4dval_t" | "pgdval_t" | "__kernel_size_t" | "pgprotval_t" | "cycles_t"
        | "kernel_ulong_t" | "vm_flags_t" | "u_long" => (word_size, false),
        "ssize_t" | "off_t" | "intptr_t" | "ptrdiff_t" | "time_t" | "clock_t"
        | "__kernel_time_t" => (word_size, true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_their_words() {
        let of = |text: &str| named(&text.split(' ').collect::<Vec<_>>(), 8);
        assert_eq!(of("unsigned"), Some(Int::UINT));
        assert_eq!(of("unsigned long long"), Some(Int::U64));
        assert_eq!(of("long"), Some(Int::S64));
        assert_eq!(named(&["unsigned", "long"], 4), Some(Int::UINT));
        assert_eq!(of("short int"), Some(Int { size: 2, signed: true }));
        assert_eq!(of("const char"), Some(Int::CHAR));
        assert_eq!(of("enum zone_type"), Some(Int::UINT));
        assert_eq!(of("struct foo"), None);
    }

    #[test]
    fn conversions_are_those_of_c() {
        let int = |v: i64| (v as u64, Int::INT);
        assert_eq!(binary(Op::Lt, int(-1), (1, Int::UINT)).unwrap().0, 0);
        assert_eq!(binary(Op::Lt, int(-1), (1, Int::S64)).unwrap().0, 1);
        assert_eq!(binary(Op::Div, int(-7), int(2)).unwrap().0 as i64, -3);
        assert_eq!(binary(Op::Shl, int(1), int(31)).unwrap(), (0xffff_ffff_8000_0000, Int::INT));
        assert_eq!(binary(Op::Add, (255, Int::U8), (1, Int::U8)).unwrap(), (256, Int::INT));
        assert_eq!(binary(Op::Rem, int(1), int(0)), Err(Fault::Division));
        assert_eq!(
            binary(Op::Div, (i64::MIN as u64, Int::S64), int(-1)).unwrap().0,
            i64::MIN as u64
        );
        assert_eq!(unary(b'~', (0, Int::U8)), (u64::MAX, Int::INT));
    }
}
