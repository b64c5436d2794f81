//! Options of the tracer that change the text.

use crate::Array;

use super::block::BlockStyle;
use super::in_bytes::InBytes;
use super::{Options, Style};
use crate::print::{Names, Show, Spec, number};

/// Trace options that change the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flags {
    pub(crate) parent: bool,
    pub(crate) symbol_offset: bool,
    pub(crate) symbol_address: bool,
    /// Addresses of user stacks are shown as places in files.
    pub(crate) user_files: bool,
    pub(crate) verbose: bool,
    pub(crate) raw: bool,
    pub(crate) fields: bool,
    /// The numbers of events are shown in bytes.
    pub(crate) in_bytes: Option<InBytes>,
    /// True for events of an earlier boot: `fields` does not apply to ftrace's own entries, and an
    /// event without a format is shown as bytes.
    pub(crate) of_last_boot: bool,
    pub(crate) annotate: bool,
    pub(crate) context: bool,
    pub(crate) latency: bool,
    pub(crate) tgid: bool,
    pub(crate) irq: bool,
    pub(crate) message_only: bool,
    pub(crate) hash: bool,
    /// Times are shown as those before this reading of the clock.
    pub(crate) before: Option<i64>,
    /// Options of the tracer `blk`.
    pub(crate) block: BlockStyle,
}

impl Flags {
    /// Returns the flags of an array, changed by `options`. If the array's options are not known,
    /// they have the kernel's defaults at boot.
    pub(crate) fn new(array: &Array, options: &Options) -> Self {
        let unknown = array.options.is_none();
        let on = |name: &str| array.has_option(name);
        let (raw, fields) = match options.style {
            Style::AsSet => (on("raw"), on("fields")),
            Style::Default | Style::Latency => (false, false),
            Style::Raw => (true, false),
            Style::Fields => (false, true),
        };
        let in_bytes = match options.style {
            Style::AsSet if on("bin") => Some(InBytes::Binary),
            Style::AsSet if on("hex") => Some(InBytes::Hex),
            _ => None,
        };
        let of_tracer = |name: &str| {
            array.tracer_name() == "blk" && array.tracer_options.iter().any(|o| o == name)
        };
        Self {
            parent: unknown || on("print-parent"),
            symbol_offset: on("sym-offset"),
            symbol_address: on("sym-addr"),
            user_files: on("sym-userobj"),
            verbose: on("verbose"),
            raw,
            fields,
            in_bytes,
            of_last_boot: array.is_of_last_boot,
            annotate: unknown || on("annotate"),
            context: unknown || on("context-info"),
            // The latency format has times of its own.
            latency: (on("latency-format") && options.before.is_none())
                || options.style == Style::Latency,
            tgid: on("record-tgid"),
            irq: unknown || on("irq-info"),
            message_only: on("printk-msg-only"),
            hash: options.hash_pointers.unwrap_or(unknown || on("hash-ptr")),
            before: options.before,
            block: BlockStyle {
                before: options.before,
                classic: of_tracer("blk_classic"),
                long: on("verbose"),
                group_names: of_tracer("blk_cgname"),
            },
        }
    }
}

/// Appends an address as `function+0x1/0x20` or as the options select, or `0` for a null address
/// (`seq_print_ip_sym`).
pub(crate) fn address(
    out: &mut Vec<u8>,
    names: &mut Names,
    address: u64,
    flags: &Flags,
    word_size: u8,
) {
    if address == 0 {
        out.push(b'0');
        return;
    }
    names.show(out, address, if flags.symbol_offset { Show::Offset } else { Show::Bare });
    if flags.symbol_address {
        out.extend_from_slice(b" <");
        let spec = Spec { width: u32::from(word_size) * 2, zero: true, ..Spec::default() };
        number(out, spec, address, false, 16, false);
        out.push(b'>');
    }
}
