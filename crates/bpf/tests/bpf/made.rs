//! A kernel with BPF: its types, its tables of ids, and what a test puts into its maps.

use crate::memory::{Regions, TEXT};
use lastwords_kernel::Kernel;
use lastwords_testkit::btf::Writer;

const MAP_IDR: u64 = TEXT + 0x1000;
const PROGRAM_IDR: u64 = TEXT + 0x1100;
const LINK_IDR: u64 = TEXT + 0x1200;
const OFFSETS: u64 = TEXT + 0x1300;
const POSSIBLE: u64 = TEXT + 0x1400;
const IDS: u64 = TEXT + 0x1500;
/// Where a node of a table of ids has its slots, and how many.
const SLOTS: u64 = 40;
const SLOT_COUNT: u64 = 64;
/// Where CPUs have their copies of what is at 0 and above.
pub(crate) const PER_CPU: [u64; 2] = [0xffff_8880_4000_0000, 0xffff_8880_4100_0000];
/// Address of the first object.
const HEAP: u64 = 0xffff_8880_0000_0000;
/// Offsets in a ring.
pub(crate) const CONSUMER: u64 = 0x1000;
pub(crate) const PRODUCER: u64 = 0x2000;
pub(crate) const OVERWRITTEN: u64 = 0x2010;
pub(crate) const DATA: u64 = 0x3000;

/// The kernel that is made.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) memory: Regions,
    next: u64,
    maps: Vec<u64>,
    programs: Vec<u64>,
    links: Vec<u64>,
    blob: Vec<u8>,
}

impl Default for Made {
    fn default() -> Self {
        let mut memory = Regions::default();
        for (cpu, base) in (0..).zip(PER_CPU) {
            memory.put_u64(OFFSETS + 8 * cpu, base);
        }
        memory.put_u64(POSSIBLE, 0b11);
        memory.put_u32(IDS, 2);
        let (maps, programs, links) = (Vec::new(), Vec::new(), Vec::new());
        Self { memory, next: HEAP, maps, programs, links, blob: types().finish(&[]) }
    }
}

impl Made {
    /// Makes room for an object at a multiple of a page.
    pub(crate) fn room(&mut self, len: u64) -> u64 {
        let at = self.next;
        self.memory.put(at, &vec![0; len as usize]);
        // A hole stays between two objects.
        self.next = (at + len).next_multiple_of(4096) + 4096;
        at
    }

    /// Adds a map: its kind's number, its name, and sizes of key, value and table. The id is
    /// returned with the address.
    pub(crate) fn map(&mut self, kind: u32, name: &str, sizes: [u32; 3], len: u64) -> (u32, u64) {
        let at = self.room(len);
        self.maps.push(at);
        let id = self.maps.len() as u32;
        for (offset, value) in (8..).step_by(4).zip([kind, sizes[0], sizes[1], sizes[2], 0, id]) {
            self.memory.put_u32(at + offset, value);
        }
        self.memory.put(at + 48, name.as_bytes());
        (id, at)
    }

    /// Gives a map types of keys and values.
    pub(crate) fn give_types(&mut self, map: u64, blob: &[u8], key: u32, value: u32) {
        let data = self.room(blob.len() as u64);
        self.memory.put(data, blob);
        let btf = self.room(64);
        self.memory.put_u64(btf, data);
        self.memory.put_u32(btf + 8, blob.len() as u32);
        self.memory.put_u32(map + 32, key);
        self.memory.put_u32(map + 36, value);
        self.memory.put_u64(map + 40, btf);
    }

    /// Adds a program that uses maps.
    pub(crate) fn program(&mut self, kind: u32, name: &str, maps: &[u64]) -> u64 {
        let (at, aux, used) = (self.room(64), self.room(128), self.room(512));
        self.programs.push(at);
        self.memory.put_u32(at + 4, kind);
        self.memory.put(at + 24, &[0xa1, 0xb2, 0xc3, 0xd4, 5, 6, 7, 8]);
        self.memory.put_u64(at + 32, aux);
        self.memory.put_u32(aux, self.programs.len() as u32);
        self.memory.put(aux + 8, name.as_bytes());
        self.memory.put_u32(aux + 24, maps.len() as u32);
        self.memory.put_u64(aux + 32, used);
        self.memory.put_u64(aux + 48, 77);
        for (n, map) in (0..).zip(maps) {
            self.memory.put_u64(used + 8 * n, *map);
        }
        at
    }

    /// Adds a link of a program.
    pub(crate) fn link(&mut self, kind: u32, program: u64) {
        let at = self.room(64);
        self.links.push(at);
        self.memory.put_u32(at + 8, self.links.len() as u32);
        self.memory.put_u32(at + 12, kind);
        self.memory.put_u64(at + 24, program);
    }

    /// Adds a ring buffer; returns its id and the address of its `struct bpf_ringbuf`.
    pub(crate) fn ring(&mut self, name: &str, size: u64) -> (u32, u64) {
        let (id, map) = self.map(27, name, [0, 0, size as u32], 128);
        let ring = self.room(DATA + size);
        self.memory.put_u64(map + 64, ring);
        self.memory.put_u64(ring + 64, size - 1);
        (id, ring)
    }

    /// Writes the tables of ids. Nothing is added after it.
    pub(crate) fn finished(&self) -> Self {
        let mut made = self.clone();
        let tables =
            [(MAP_IDR, &self.maps), (PROGRAM_IDR, &self.programs), (LINK_IDR, &self.links)];
        for (idr, entries) in tables {
            made.memory.put(idr, &[0; 32]);
            // Ids begin with 1; a table of more than one level has them in the second of two leaves.
            let levels = if entries.len() > 2 { 2 } else { 1 };
            let leaf = made.node(idr, 0, entries);
            let head = if levels == 1 { leaf } else { made.node(idr, 6, &[leaf + 2]) };
            // The first slot of a node is for id 0.
            if levels == 2 {
                made.memory.put_u64(head + SLOTS, leaf + 2);
                made.memory.put_u64(head + SLOTS + 8, 0);
            }
            made.memory.put_u64(idr + 8, head + 2);
        }
        made
    }

    /// A node of a table: slot 0 stays empty.
    fn node(&mut self, idr: u64, shift: u8, entries: &[u64]) -> u64 {
        let node = self.room(SLOTS + 8 * SLOT_COUNT);
        self.memory.put(node, &[shift, 0, entries.len() as u8]);
        self.memory.put_u64(node + 8, idr);
        for (n, entry) in (1..).zip(entries) {
            self.memory.put_u64(node + SLOTS + 8 * n, *entry);
        }
        node
    }

    /// Opens the kernel, as it is in memory.
    pub(crate) fn open(self) -> Kernel {
        let symbols = [
            (MAP_IDR, "map_idr"),
            (PROGRAM_IDR, "prog_idr"),
            (LINK_IDR, "link_idr"),
            (OFFSETS, "__per_cpu_offset"),
            (POSSIBLE, "__cpu_possible_mask"),
            (IDS, "nr_cpu_ids"),
        ];
        self.memory.open(self.blob, &symbols)
    }
}

/// The types that Linux 6.19 has, with other offsets.
fn types() -> Writer {
    let mut w = Writer::of_kernel();
    let node = SLOTS + 8 * SLOT_COUNT;
    w.declare(&format!(
        "xarray 16: void* xa_head@8
         idr 24: xarray idr_rt@0, u32 idr_base@16
         xa_node {node}: u8 shift@0, u8 offset@1, u8 count@2, void* array@8,
             void*[{SLOT_COUNT}] slots@{SLOTS}
         btf 64: void* data@0, u32 data_size@8
         bpf_map 64: u32 map_type@8, u32 key_size@12, u32 value_size@16, u32 max_entries@20,
             u32 map_flags@24, u32 id@28, u32 btf_key_type_id@32, u32 btf_value_type_id@36,
             btf* btf@40, char[16] name@48
         bpf_prog_aux 128: u32 id@0, char[16] name@8, u32 used_map_cnt@24, bpf_map** used_maps@32,
             char* attach_func_name@40, u64 load_time@48
         bpf_prog 64: u32 type@4, u8[8] tag@24, bpf_prog_aux* aux@32
         bpf_link 64: u32 id@8, u32 type@12, bpf_prog* prog@24
         bpf_ringbuf {DATA}: u64 mask@64, u8 overwrite_mode@72, u64 consumer_pos@{CONSUMER},
             u64 producer_pos@{PRODUCER}, u64 overwrite_pos@{OVERWRITTEN}, char[0] data@{DATA}
         bpf_ringbuf_map 72: bpf_map map@0, bpf_ringbuf* rb@64
         hlist_nulls_head 8: void* first@0
         bucket 16: hlist_nulls_head head@0
         bpf_htab 96: bpf_map map@0, bucket* buckets@64, u32 n_buckets@72
         hlist_nulls_node 16: void* next@0
         htab_elem 48: hlist_nulls_node hash_node@8, char[0] key@48"
    ));
    let [map, size, values, pointers] =
        ["bpf_map", "u32", "char[0]", "void*[0]"].map(|name| w.named(name));
    let either = w.composite(5, "", 0, &[("value", values, 0), ("pptrs", pointers, 0)]);
    w.structure("bpf_array", 80, &[("map", map, 0), ("elem_size", size, 64), ("", either, 80)]);
    w.enumeration(
        "bpf_map_type",
        &[
            ("BPF_MAP_TYPE_HASH", 1),
            ("BPF_MAP_TYPE_ARRAY", 2),
            ("BPF_MAP_TYPE_PROG_ARRAY", 3),
            ("BPF_MAP_TYPE_PERCPU_HASH", 5),
            ("BPF_MAP_TYPE_PERCPU_ARRAY", 6),
            ("BPF_MAP_TYPE_RINGBUF", 27),
            ("BPF_MAP_TYPE_ALIAS", 27),
            ("BPF_MAP_TYPE_USER_RINGBUF", 31),
        ],
    );
    w.enumeration("bpf_prog_type", &[("BPF_PROG_TYPE_TRACEPOINT", 5)]);
    w.enumeration("bpf_link_type", &[("BPF_LINK_TYPE_PERF_EVENT", 7)]);
    w
}
