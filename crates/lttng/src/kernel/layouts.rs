//! Structures of known releases of lttng-modules, for images in which the tracer's modules have no
//! types of their own.
//!
//! A kernel's configuration changes only the sizes of embedded kernel structures, and the kernel's
//! types provide those. The order of the members changes between releases: the tables below are for
//! 2.13.0 to 2.13.23, and for 2.14.0 to 2.16 (`include/lttng/events-internal.h`, `events.h`,
//! `include/ringbuffer/{frontend,backend}_types.h`, `config.h`). Members after the last one that is
//! read are left out if the structure is never embedded or an array element. `cargo
//! xtask lttng-layouts` compares the tables with the modules' own types.

use lastwords_bytes::Budget;
use lastwords_kernel::btf::{Builder, Types};
use lastwords_kernel::{Error, Kernel};
use std::sync::Arc;

/// A structure: its name and its members.
type Declaration = (&'static str, &'static str);

/// The structures of a range of releases; embedded structures come first.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// Names of the releases.
    pub name: &'static str,
    /// Structures: those of these releases that come first, those common to all releases, and the
    /// rest of these releases'.
    structures: [&'static [Declaration]; 3],
}

/// All known releases, the newest first.
pub const RELEASES: [Release; 2] = [
    Release {
        name: "lttng-modules 2.14 to 2.16",
        structures: [COUNTERS_2_14, BOTH, SESSIONS_2_14],
    },
    Release { name: "lttng-modules 2.13", structures: [COUNTERS_2_13, BOTH, SESSIONS_2_13] },
];

impl Release {
    /// Returns the types of `kernel` together with these structures.
    ///
    /// # Errors
    /// The kernel lacks a type that the structures embed.
    pub fn types(&self, kernel: &Kernel) -> Result<Arc<Types>, Error> {
        let memory = &kernel.memory;
        let mut builder = Builder::new(&kernel.types, memory.byte_order(), memory.word_size());
        self.add_to(&mut builder)?;
        Ok(Arc::new(builder.finish(kernel.budget())?))
    }

    /// Same as [`Self::types`], for the types of a kernel without its image.
    ///
    /// # Errors
    /// `kernel` lacks a type that the structures embed.
    pub fn types_of(&self, kernel: &Arc<Types>, budget: &Budget) -> Result<Types, Error> {
        let mut builder = Builder::new(kernel, lastwords_bytes::ByteOrder::Little, 8);
        self.add_to(&mut builder)?;
        Ok(builder.finish(budget)?)
    }

    /// Names of the structures.
    pub fn structures(&self) -> impl Iterator<Item = &'static str> {
        self.structures.into_iter().flatten().map(|(name, _)| *name)
    }

    fn add_to(&self, builder: &mut Builder) -> Result<(), Error> {
        self.structures
            .into_iter()
            .flatten()
            .try_for_each(|(name, members)| builder.structure(name, members))
    }
}

const COUNTERS_2_13: &[Declaration] = &[
    ("commit_counters_cold", "long cc_sb"),
    ("lttng_kernel_time", "long last_tsc"),
    ("lttng_kernel_channel_time", "u64 start_tsc"),
];

const COUNTERS_2_14: &[Declaration] = &[
    ("commit_counters_cold", "long cc_sb; long end_events_discarded"),
    ("lttng_kernel_time", "long last_timestamp"),
    ("lttng_kernel_channel_time", "u64 start_timestamp"),
];

/// Structures that are the same in all releases. A `union v_atomic` is declared as a `long`.
const BOTH: &[Declaration] = &[
    ("commit_counters_hot", "long cc; long seq"),
    ("lttng_kernel_ring_buffer_backend_page", "* virt; long pfn"),
    (
        "lttng_kernel_ring_buffer_backend_pages",
        "long mmap_offset; long records_commit; long records_unread; long data_size; \
         lttng_kernel_ring_buffer_backend_page p[]",
    ),
    ("lttng_kernel_ring_buffer_backend_subbuffer", "long id"),
    ("lttng_kernel_ring_buffer_backend_counts", "u64 seq_cnt"),
    (
        "lttng_kernel_ring_buffer_backend",
        "*lttng_kernel_ring_buffer_backend_subbuffer buf_wsb; lttng_kernel_ring_buffer_backend_subbuffer buf_rsb; \
         *lttng_kernel_ring_buffer_backend_counts buf_cnt; **lttng_kernel_ring_buffer_backend_pages array; \
         u32 num_pages_per_subbuf; *lttng_kernel_ring_buffer_channel chan; int cpu; long records_read; u32 allocated:1",
    ),
    (
        "lttng_kernel_ring_buffer_iter",
        "u64 timestamp; long header_len; long payload_len; @list_head empty_node; long consumed; long read_offset; \
         long data_size; u32 state; u32 allocated:1",
    ),
    // The only member is embedded in the next structure; its name differs between releases, its
    // place does not.
    (
        "lttng_kernel_ring_buffer",
        "long offset; *commit_counters_hot commit_hot; long consumed; u32 record_disabled; lttng_kernel_time time; \
         lttng_kernel_ring_buffer_backend backend; *commit_counters_cold commit_cold; * ts_end; long active_readers; \
         long records_lost_full; long records_lost_wrap; long records_lost_big; long records_count; long records_overrun; \
         @wait_queue_head_t read_wait; @wait_queue_head_t write_wait; @irq_work wakeup_pending; int finalized; \
         @timer_list switch_timer; @timer_list read_timer; @raw_spinlock_t raw_tick_nohz_spinlock; \
         lttng_kernel_ring_buffer_iter iter; long get_subbuf_consumed; long prod_snapshot; long cons_snapshot; u32 get_subbuf:1",
    ),
    // The configuration ends with eight function pointers.
    (
        "lttng_kernel_ring_buffer_config",
        "u32 alloc; u32 sync; u32 mode; u32 output; u32 backend; u32 oops; u32 ipi; u32 wakeup; u32 bits; * cb[8]",
    ),
    ("lttng_cpuhp_node", "u32 component; @hlist_node node"),
    (
        "channel_backend",
        "long buf_size; long subbuf_size; u32 subbuf_size_order; u32 num_subbuf_order; u32 buf_size_order; \
         u32 extra_reader_sb:1; *lttng_kernel_ring_buffer buf; long num_subbuf; lttng_kernel_channel_time start; * priv; \
         * priv_ops; * release_priv_ops; lttng_cpuhp_node cpuhp_prepare; lttng_kernel_ring_buffer_config config; \
         @cpumask_var_t cpumask; u8 name[255]",
    ),
    (
        "lttng_kernel_ring_buffer_channel",
        "u32 record_disabled; long commit_count_mask; channel_backend backend",
    ),
    ("lttng_kernel_session", "*lttng_kernel_session_private priv; int active"),
    ("lttng_kernel_channel_common", "*lttng_kernel_channel_common_private priv; u32 type"),
    ("lttng_event_ht", "@hlist_head table[4096]"),
    (
        "lttng_metadata_cache",
        "*u8 data; u32 cache_alloc; u32 metadata_written; u32 producing; u32 refcount; @list_head metadata_stream; u8 uuid[16]",
    ),
];

const SESSIONS_2_13: &[Declaration] = &[
    (
        "lttng_kernel_session_private",
        "*lttng_kernel_session pub; int been_active; * file; @list_head chan; @list_head events; @list_head list; \
         u32 free_chan_id; u8 uuid[16]; *lttng_metadata_cache metadata_cache; u8 flags; @list_head enablers_head; \
         lttng_event_ht events_ht; u8 name[256]; u8 creation_time[26]",
    ),
    (
        "lttng_kernel_channel_common_private",
        "*lttng_kernel_channel_common pub; * file; u32 flags:3; * sc_table; * compat_sc_table; * sc_exit_table; \
         * compat_sc_exit_table; @hlist_head sc_unknown; @hlist_head sc_compat_unknown; @hlist_head sc_exit_unknown; \
         @hlist_head compat_sc_exit_unknown; * sc_filter; int syscall_all_entry; int syscall_all_exit",
    ),
    (
        "lttng_kernel_channel_buffer_private",
        "lttng_kernel_channel_common_private parent; * pub; u32 id; u32 free_event_id; int header_type; u32 channel_type; \
         * ctx; *lttng_kernel_ring_buffer_channel rb_chan; u32 metadata_dumped:1; @list_head node; * transport",
    ),
];

const SESSIONS_2_14: &[Declaration] = &[
    (
        "lttng_kernel_session_private",
        "*lttng_kernel_session pub; int been_active; * file; @list_head chan_head; @list_head events_head; \
         @list_head enablers_head; lttng_event_ht events_name_ht; lttng_event_ht events_key_ht; @list_head node; \
         u32 free_chan_id; u8 uuid[16]; *lttng_metadata_cache metadata_cache; int states[128]; u32 state_index; u8 flags; \
         u8 name[256]; u8 creation_time[26]; u32 output_format",
    ),
    (
        "lttng_kernel_syscall_table",
        "u32 flags:2; * syscall_dispatch; * compat_syscall_dispatch; * syscall_exit_dispatch; \
         * compat_syscall_exit_dispatch; @hlist_head unknown_syscall_dispatch; @hlist_head compat_unknown_syscall_dispatch; \
         @hlist_head unknown_syscall_exit_dispatch; @hlist_head compat_unknown_syscall_exit_dispatch; * sc_filter; \
         int syscall_all_entry; int syscall_all_exit",
    ),
    (
        "lttng_kernel_channel_common_private",
        "*lttng_kernel_channel_common pub; * file; u8 tstate; u8 coalesce_hits; @list_head node; \
         lttng_kernel_syscall_table syscall_table",
    ),
    (
        "lttng_kernel_channel_buffer_private",
        "lttng_kernel_channel_common_private parent; * pub; u32 id; u32 free_event_id; int header_type; u32 channel_type; \
         * ctx; *lttng_kernel_ring_buffer_channel rb_chan; u32 metadata_dumped:1; * transport",
    ),
];
