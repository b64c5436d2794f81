//! Layouts of the metadata of ftrace's persistent ring buffer: those of real kernels, and invented
//! ones; and the types that describe them.

use crate::btf::Writer;
use crate::form::Form;
use crate::put::Order;

/// A type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A number of so many bytes.
    Number(usize),
    /// A structure around a number (`local_t`).
    Wrapped(usize),
    /// An array of numbers at the end of a structure, and the bytes of each.
    Tail(usize),
    /// An array of characters.
    Text(usize),
    /// An array of another structure at the end.
    Rows(&'static str),
}

/// A member of a structure.
#[derive(Debug, Clone)]
pub struct Member {
    /// Name.
    pub name: String,
    /// Offset in bytes.
    pub at: usize,
    /// Type.
    pub of: Type,
}

/// A structure.
#[derive(Debug, Clone)]
pub struct Structure {
    /// Name.
    pub name: String,
    /// Bytes.
    pub size: usize,
    /// Members.
    pub members: Vec<Member>,
}

/// A layout of the metadata.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The form.
    pub form: Form,
    /// The machine is big-endian.
    pub is_big: bool,
    /// Bytes of a `long`.
    pub word: usize,
    /// The value of the bytes between members.
    pub fill: u8,
    /// The structures that the kernel has.
    pub structures: Vec<Structure>,
}

/// Chooses the shape of an invented layout: returns a number below another.
pub type Choose<'a> = &'a mut dyn FnMut(usize) -> usize;

impl Structure {
    /// Lays members out as a compiler does.
    pub fn new(name: &str, members: &[(&str, Type)]) -> Self {
        Self::spread(name, members, &mut |_| 0)
    }

    /// Lays members out, some with a gap before them.
    fn spread(name: &str, members: &[(&str, Type)], gaps: Choose<'_>) -> Self {
        let (mut end, mut align, mut all) = (0usize, 1, Vec::new());
        for (name, of) in members {
            let (size, own) = match *of {
                Type::Number(size) | Type::Wrapped(size) => (size, size),
                Type::Text(len) => (len, 1),
                Type::Tail(size) => (0, size),
                Type::Rows(_) => (0, 4),
            };
            let at = (end + 4 * gaps(4)).next_multiple_of(own);
            all.push(Member { name: (*name).to_owned(), at, of: *of });
            (end, align) = (at + size, align.max(own));
        }
        Self {
            name: name.to_owned(),
            size: (end + 4 * gaps(4)).next_multiple_of(align),
            members: all,
        }
    }
}

impl Layout {
    /// The layout of Linux 6.12, or that of Linux 6.16 to 7.3, as `pahole` shows it in the types of
    /// Debian's kernels.
    pub fn known(form: Form, word: usize, is_big: bool) -> Self {
        let members = Self::declared(form, word, 4, 64 - word);
        let structures =
            members.iter().map(|(name, members)| Structure::new(name, members)).collect();
        Self { form, is_big, word, fill: 0, structures }
    }

    /// The layout of a kernel after Linux 7.3: a CPU has two more numbers before the table of the
    /// order.
    pub fn newer() -> Self {
        let mut layout = Self::known(Form::Common, 8, false);
        let own =
            layout.structures.iter_mut().find(|structure| structure.name == "ring_buffer_cpu_meta");
        let Structure { size, members, .. } = own.expect("a structure of the layout");
        members
            .iter_mut()
            .filter(|member| member.name == "buffers")
            .for_each(|member| member.at = 40);
        let more = [("nr_invalid", 32), ("entry_bytes", 36)];
        members.extend(more.map(|(name, at)| Member {
            name: name.to_owned(),
            at,
            of: Type::Number(4),
        }));
        *size = 40;
        layout
    }

    /// A layout that no kernel has: its members are in any order, with gaps between them and more
    /// members, and of other sizes.
    pub fn invented(form: Form, word: usize, is_big: bool, choose: Choose<'_>) -> Self {
        let (number, text) = (4 + 4 * choose(2), 16 + 4 * choose(13));
        let mut structures = Vec::new();
        for (name, mut members) in Self::declared(form, word, number, text) {
            let is_tail = |(_, of): &(&str, Type)| matches!(of, Type::Tail(_) | Type::Rows(_));
            let tail = members.iter().position(is_tail).map(|at| members.remove(at));
            if name != "buffer_data_page" {
                (0..choose(4)).for_each(|n| {
                    members.push((["more", "else", "other", "rest"][n], Type::Number(4)))
                });
                (1..members.len()).rev().for_each(|at| members.swap(at, choose(at + 1)));
            }
            members.extend(tail);
            let fixed = name == "buffer_data_page";
            structures.push(Structure::spread(name, &members, &mut |n| {
                if fixed { 0 } else { choose(n) }
            }));
        }
        Self { form, is_big, word, fill: 0xa5, structures }
    }

    /// The members that a kernel declares. `number`: bytes of an `int`; `text`: bytes of a module's
    /// name.
    fn declared(
        form: Form,
        word: usize,
        number: usize,
        text: usize,
    ) -> Vec<(&'static str, Vec<(&'static str, Type)>)> {
        let (int, long) = (Type::Number(number), Type::Number(word));
        let addresses = [("first_buffer", long), ("head_buffer", long), ("commit_buffer", long)];
        let ring = [("subbuf_size", int), ("nr_subbufs", int), ("buffers", Type::Tail(number))];
        let page = vec![
            ("time_stamp", Type::Number(8)),
            ("commit", Type::Wrapped(word)),
            ("data", Type::Tail(1)),
        ];
        let mut all = vec![("buffer_data_page", page)];
        if form == Form::PerCpu {
            let head =
                [("magic", int), ("struct_size", int), ("text_addr", long), ("data_addr", long)];
            all.push(("ring_buffer_meta", [&head[..], &addresses, &ring].concat()));
            return all;
        }
        let head = vec![
            ("magic", int),
            ("struct_sizes", int),
            ("total_size", long),
            ("buffers_offset", long),
        ];
        let rows = Type::Rows("trace_mod_entry");
        let scratch =
            vec![("clock_id", int), ("text_addr", long), ("nr_entries", long), ("entries", rows)];
        all.push(("ring_buffer_meta", head));
        all.push(("ring_buffer_cpu_meta", [&addresses[..], &ring].concat()));
        all.push(("trace_mod_entry", vec![("mod_addr", long), ("mod_name", Type::Text(text))]));
        all.push(("trace_scratch", scratch));
        all
    }

    /// The structure with a name.
    ///
    /// # Panics
    /// There is none.
    pub fn structure(&self, name: &str) -> &Structure {
        self.structures
            .iter()
            .find(|structure| structure.name == name)
            .expect("a structure of the layout")
    }

    /// A structure has a member.
    pub fn has(&self, structure: &str, name: &str) -> bool {
        self.structure(structure).members.iter().any(|member| member.name == name)
    }

    /// Offset and bytes of a member.
    ///
    /// # Panics
    /// There is none.
    pub fn member(&self, structure: &str, name: &str) -> (usize, usize) {
        let found = self.structure(structure).members.iter().find(|member| member.name == name);
        let Member { at, of, .. } = found.expect("a member of the structure");
        match *of {
            Type::Number(size) | Type::Wrapped(size) | Type::Tail(size) | Type::Text(size) => {
                (*at, size)
            }
            Type::Rows(rows) => (*at, self.structure(rows).size),
        }
    }

    /// The types of the kernel, as a BTF blob (`include/uapi/linux/btf.h`).
    pub fn btf(&self) -> Vec<u8> {
        let mut blob = Writer::new(if self.is_big { Order::Big } else { Order::Little });
        // A kernel's blob has `unsigned long` among its first types: it tells the size of a
        // pointer.
        let long = blob.int("long unsigned int", self.word as u32, false);
        let [byte, four, eight] = [(1, "char"), (4, "int"), (8, "long long")]
            .map(|(size, name)| blob.int(name, size, false));
        let number = |size: usize| match size {
            1 => byte,
            4 => four,
            _ => eight,
        };
        let counter = blob.structure("", self.word as u32, &[("counter", long, 0)]);
        let local = blob.typedef("local_t", counter);
        let mut rows = 0;
        for structure in &self.structures {
            let mut members = Vec::new();
            for Member { name, at, of } in &structure.members {
                let id = match *of {
                    Type::Number(size) => number(size),
                    Type::Wrapped(_) => local,
                    Type::Tail(size) => blob.array(number(size), 0),
                    Type::Text(len) => blob.array(byte, len as u32),
                    Type::Rows(_) => blob.array(rows, 0),
                };
                members.push((name.as_str(), id, *at as u32));
            }
            let id = blob.structure(&structure.name, structure.size as u32, &members);
            if structure.name == "trace_mod_entry" {
                rows = id;
            }
        }
        blob.finish(&[])
    }
}
