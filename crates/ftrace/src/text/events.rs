//! Prints one event as text (`print_trace_line`).

use super::Options;
use super::arguments::Form;
use super::context::{self, Common, EventInfo, TaskFields, Tasks, lost_line};
use super::fields::{Fields, Since};
use super::flags::Flags;
use super::graph::{self, Graph, State};
use super::head::HeadCache;
use super::merge::{Merge, NextEvent};
use super::notes::{FILES_UNKNOWN, faulty, unknown_parts};
use super::own::Own;
use super::own_text::Around;
use super::syscall::Syscall;
use crate::choice::is_selected;
use crate::filter::RawFilter;
use crate::print::{Env, Fault, Machine, Names, Program, Show, Spec, compile, number};
use crate::relative_time::time_before;
use crate::{Array, Format, Ring, Tracing, is_since};
use lastwords_bytes::{ByteOrder, low_u16};
use lastwords_trace::text::number::unsigned;
use lastwords_trace::text::page::Page;
use lastwords_trace::text::page::Put;

/// Bytes of the common fields of every event: id, flags, preemption count, pid (`struct
/// trace_entry`).
const COMMON: usize = 8;

/// The way in which a kind of event is printed.
enum Renderer {
    Own(Own),
    Syscall(Syscall),
    Program(Program),
    /// The kernel prints the fields, or the print format cannot be evaluated.
    Fields,
}

/// A kind of event.
struct Kind<'a> {
    format: &'a Format,
    is_selected: bool,
    /// True if a note exists already that this kind could not be printed.
    is_noted: bool,
    /// A note for when the first event of the kind is printed.
    note: Option<String>,
    /// True if its text is made by a plain program.
    is_line: bool,
    renderer: Renderer,
    fields: Fields,
    /// The fields of its events from which names of tasks are learned.
    named: Vec<TaskFields>,
}

/// Prints events.
pub(crate) struct Printer<'a> {
    pub(crate) flags: Flags,
    pub(crate) notes: Vec<String>,
    tracing: &'a Tracing,
    machine: Machine,
    in_ns: bool,
    globs: &'a [String],
    filter: Option<RawFilter<'a>>,
    /// Kinds of events by id. A kind is compiled when its first event is printed.
    kinds: Vec<Option<Box<Kind<'a>>>>,
    state: State<'a>,
    heads: HeadCache,
    scratch: Vec<u8>,
    /// Copy of the payload that is printed, for kinds that look at later events meanwhile.
    kept: Vec<u8>,
    graph: Graph,
    is_graph: bool,
    /// True if the tracer is `mmiotrace`.
    is_memory: bool,
    /// True if lines have the default form.
    is_default: bool,
    /// True if the ring has overwritten events. Then the beginning of each CPU's events is marked.
    annotate: bool,
    time_start: u64,
    printed: u64,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(
        tracing: &'a Tracing,
        array: &'a Array,
        ring: &dyn Ring,
        options: &'a Options,
    ) -> Self {
        let flags = Flags::new(array, options);
        let overrun = ring.cpus().iter().any(|c| c.stats.overrun > 0);
        let is_graph = graph::draws(array);
        let is_memory = array.tracer_name() == "mmiotrace";
        Self {
            flags,
            notes: Vec::new(),
            tracing,
            machine: Machine::from_tracing(tracing),
            in_ns: array.is_in_ns(),
            globs: &options.choice.events,
            filter: options.choice.filter.as_deref().map(|filter| RawFilter::new(filter, tracing)),
            kinds: Vec::new(),
            state: State {
                tasks: Tasks::new(tracing, flags.tgid),
                names: Names::new(tracing, flags.hash),
                order: tracing.byte_order,
                flags,
                time_start: ring.time_start(),
                arguments: Form::from_tracing(tracing),
                exit: tracing.formats.values().find_map(|f| match Own::from_format(f) {
                    Some(Own::GraphExit(exit)) => Some(exit),
                    _ => None,
                }),
            },
            heads: HeadCache::new(flags.irq, array.is_in_ns(), options.before),
            scratch: Vec::new(),
            kept: Vec::new(),
            graph: Graph::new(tracing, array, ring, options.before.is_some()),
            is_graph,
            is_memory,
            is_default: flags.context
                && !(is_graph
                    || is_memory
                    || flags.latency
                    || flags.raw
                    || flags.fields
                    || flags.message_only)
                && flags.in_bytes.is_none(),
            annotate: flags.annotate && overrun,
            time_start: ring.time_start(),
            printed: 0,
        }
    }

    fn order(&self) -> ByteOrder {
        self.machine.order
    }

    /// Returns true if the event of this payload is selected.
    pub(crate) fn is_selected(&mut self, payload: &[u8]) -> bool {
        let id = Common::read(payload, self.order()).id;
        self.learn(id);
        match self.kinds.get(usize::from(id)) {
            Some(Some(kind)) => kind.is_selected,
            _ => is_selected(self.globs, "unknown", &id.to_string()),
        }
    }

    /// Returns true if the filter, if there is one, is true for the event of this payload.
    pub(crate) fn matches(&mut self, payload: &[u8], cpu: u32) -> bool {
        let tasks = &self.state.tasks;
        self.filter
            .as_mut()
            .is_none_or(|filter| filter.matches(payload, cpu, |pid| tasks.comm(pid)))
    }

    /// Compiles the event's kind, once.
    #[inline]
    fn learn(&mut self, id: u16) {
        let at = usize::from(id);
        if self.kinds.get(at).is_none_or(Option::is_none) {
            self.compile(id);
        }
    }

    #[cold]
    fn compile(&mut self, id: u16) {
        let at = usize::from(id);
        if self.kinds.len() <= at {
            self.kinds.resize_with(at + 1, || None);
        }
        let Some(format) = self.tracing.formats.get(&id) else { return };
        let mut note = None;
        let renderer = if let Some(own) = Own::from_format(format) {
            Renderer::Own(own)
        } else if let Some(syscall) =
            Syscall::from_format(format, is_since(&self.tracing.release, (6, 18)))
        {
            Renderer::Syscall(syscall)
        } else if format.is_user_event() {
            Renderer::Fields
        } else {
            match compile(format, self.machine, &*self.tracing.symbols) {
                Ok(program) => {
                    note = unknown_parts(format, program.unknown());
                    Renderer::Program(program.with_prefix(format!("{}: ", format.name).as_bytes()))
                }
                Err(why) => {
                    let (system, name) = (&format.system, &format.name);
                    note = Some(format!(
                        "{system}:{name}: its print format has {why}; its fields are shown"
                    ));
                    Renderer::Fields
                }
            }
        };
        let is_selected = is_selected(self.globs, &format.system, &format.name);
        let is_line = matches!(&renderer, Renderer::Program(program) if program.is_plain());
        let fields = Fields::new(format, Since::from_release(&self.tracing.release));
        let named = self.state.tasks.named_by(format);
        let kind =
            Kind { format, is_selected, is_noted: false, note, is_line, renderer, fields, named };
        if let Some(place) = self.kinds.get_mut(at) {
            *place = Some(Box::new(kind));
        }
    }

    /// Appends the line of an event whose text depends only on its own fields; most events are of
    /// this kind. Returns false for other events.
    #[inline(always)]
    pub(crate) fn line(&mut self, page: &mut Page, front: &NextEvent<'_>) -> bool {
        let is_marked = front.follows_loss || (self.annotate && !front.is_started);
        if is_marked || !self.is_default {
            return false;
        }
        let order = self.order();
        let Some(word) = Common::read_word(front.payload, order) else { return false };
        let Some(Some(kind)) = self.kinds.get(usize::from(low_u16(word))) else { return false };
        let (true, Renderer::Program(program)) = (kind.is_line, &kind.renderer) else {
            return false;
        };
        let is_put = page.line(|line| {
            let is_put = self.heads.put_cached(line, front.lane, front.time, word >> 16)
                && program.line(front.payload, order, line).is_ok();
            line.block(b"\n", 1);
            is_put
        });
        self.printed = self.printed.saturating_add(u64::from(is_put));
        if is_put
            && !kind.named.is_empty()
            && self.state.tasks.lacks(&kind.named, front.payload, order)
        {
            self.state.tasks.learn(&kind.named, front.payload, order);
            self.heads.forget();
        }
        is_put
    }

    /// Learns the names of tasks from an event that is not printed.
    pub(crate) fn skip(&mut self, payload: &[u8]) {
        if self.tracing.learns_comms {
            let id = Common::read(payload, self.order()).id;
            self.learn(id);
            self.learn_names(id, payload);
        }
    }

    /// Learns the names of tasks from an event of kind `id`.
    fn learn_names(&mut self, id: u16, payload: &[u8]) {
        let order = self.order();
        let Some(Some(kind)) = self.kinds.get(usize::from(id)) else { return };
        if self.state.tasks.lacks(&kind.named, payload, order) {
            self.state.tasks.learn(&kind.named, payload, order);
            self.heads.forget();
        }
    }

    /// Appends the lines of the next event of `merge` and skips the event.
    pub(crate) fn event(&mut self, out: &mut Vec<u8>, merge: &mut Merge<'_>) {
        let order = self.order();
        let id = Common::read(merge.payload(), order).id;
        self.learn(id);
        let named =
            self.kinds.get(usize::from(id)).and_then(Option::as_ref).map(|kind| &kind.named);
        let lacks =
            named.is_some_and(|named| self.state.tasks.lacks(named, merge.payload(), order));
        // The event is skipped before its names are learned, so that its own line has the names
        // known before it.
        let payload = lacks.then(|| merge.payload().to_vec());
        self.lines(out, merge);
        if let Some(payload) = payload {
            self.learn_names(id, &payload);
        }
    }

    fn lines(&mut self, out: &mut Vec<u8>, merge: &mut Merge<'_>) {
        let Some(time) = merge.head() else { return };
        let common = Common::read(merge.payload(), self.order());
        let at = EventInfo { time, cpu: merge.cpu(), lane: merge.lane(), common };
        if let Some(lost) = merge.take_lost() {
            lost_line(out, at.cpu, lost);
        }
        // Kernels count from 0 and mark only what has a greater index than 1
        // (`test_cpu_buff_start`).
        let starts = self.annotate && merge.take_start() && self.printed > 1;
        self.printed = self.printed.saturating_add(1);
        if self.is_graph && self.graph_line(out, merge, at) {
            return;
        }
        if self.is_memory {
            super::own_text::mmio_line(
                out,
                self.own(common.id),
                merge.payload(),
                self.order(),
                time,
            );
            return merge.advance();
        }
        if self.flags.block.classic && matches!(self.own(common.id), Some(Own::Block(_))) {
            let kept = self.keep(merge);
            self.text_without_fields(out, &kept, at);
            self.kept = kept;
            return merge.advance();
        }
        if self.flags.message_only && self.message(out, merge.payload(), at) {
            merge.advance();
            return;
        }
        if let Some(form) = self.flags.in_bytes {
            self.learn(common.id);
            let kind = self.kinds.get(usize::from(common.id)).and_then(Option::as_ref);
            let own = kind
                .map(|kind| if let Renderer::Own(own) = &kind.renderer { Some(own) } else { None });
            form.event(out, (at, merge.payload()), own, self.flags.context, self.order());
            return merge.advance();
        }
        if self.flags.raw {
            self.raw(out, merge.payload(), at);
            return merge.advance();
        }
        if starts {
            out.extend_from_slice(b"##### CPU ");
            unsigned(out, u64::from(at.cpu));
            out.extend_from_slice(b" buffer started ####\n");
        }
        if self.flags.context && self.flags.latency {
            let kept = self.keep(merge);
            merge.advance();
            let next = merge.head().unwrap_or(time);
            self.latency_context(out, at, next);
            self.text(out, &kept, at, None);
            self.kept = kept;
            return;
        }
        if self.flags.context {
            self.heads.put(out, &mut self.state.tasks, at);
        }
        if matches!(self.own(common.id), Some(Own::GraphEntry(_) | Own::GraphExit(_)))
            && !self.flags.fields
        {
            let kept = self.keep(merge);
            self.text(out, &kept, at, Some(&mut *merge));
            self.kept = kept;
            return;
        }
        self.text(out, merge.payload(), at, None);
        merge.advance();
    }

    /// Returns a copy of the next payload in the buffer `kept`, which the caller puts back.
    fn keep(&mut self, merge: &Merge<'_>) -> Vec<u8> {
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();
        kept.extend_from_slice(merge.payload());
        kept
    }

    /// Appends the same text as [`Printer::text`], as if option `fields` were off.
    fn text_without_fields(&mut self, out: &mut Vec<u8>, payload: &[u8], at: EventInfo) {
        let fields = std::mem::replace(&mut self.flags.fields, false);
        self.text(out, payload, at, None);
        self.flags.fields = fields;
    }

    fn own(&self, id: u16) -> Option<&Own> {
        match &self.kinds.get(usize::from(id))?.as_ref()?.renderer {
            Renderer::Own(own) => Some(own),
            _ => None,
        }
    }

    fn latency_context(&mut self, out: &mut Vec<u8>, at: EventInfo, next: u64) {
        let comm = self.state.tasks.comm(at.common.pid);
        let pid = at.common.pid.cast_signed();
        if self.flags.verbose {
            let (flags, preempt) = (at.common.flags, at.common.preempt & 15);
            let line = format!(
                "{comm:>16} {pid:7} {:3} {flags} {preempt:08x} {:08x} ",
                at.cpu,
                self.printed.saturating_sub(1)
            );
            out.extend_from_slice(line.as_bytes());
        } else {
            let comm: String = comm.chars().take(8).collect();
            out.extend_from_slice(format!("{comm:>8}-{pid:<7} {:3}", at.cpu).as_bytes());
            self.state.tasks.irq_flags(out, at.common);
        }
        context::latency_time(out, at.time, self.time_start, next, self.in_ns, self.flags.verbose);
    }

    /// Appends the text after the context, including the line feed. Graph entries look at the
    /// following events in `merge` and skip themselves there.
    fn text(
        &mut self,
        out: &mut Vec<u8>,
        payload: &[u8],
        at: EventInfo,
        merge: Option<&mut Merge<'_>>,
    ) {
        let order = self.order();
        let id = at.common.id;
        let Some(kind) = self.kinds.get_mut(usize::from(id)).and_then(Option::as_mut) else {
            return unknown_type(out, id, payload, self.flags.of_last_boot);
        };
        let is_own = kind.format.system == "ftrace";
        match &kind.renderer {
            _ if self.flags.fields && !(is_own && self.flags.of_last_boot) => {
                if is_own {
                    return out.extend_from_slice(format!("UNKNOWN TYPE {id}\n").as_bytes());
                }
            }
            Renderer::Own(Own::GraphEntry(entry)) if merge.is_some() => {
                if let Some(merge) = merge {
                    self.graph.entry(out, &mut self.state, None, (*entry, payload), at, merge);
                }
                return;
            }
            Renderer::Own(Own::GraphExit(exit)) => {
                self.graph.exit(out, &mut self.state, None, *exit, payload, at);
                if let Some(merge) = merge {
                    merge.advance();
                }
                return;
            }
            Renderer::Own(own) => {
                let env = Env::new(payload, self.machine, &mut self.scratch, &mut self.state.names);
                let (tracing, tasks, flags, in_ns) =
                    (self.tracing, &self.state.tasks, &self.flags, self.in_ns);
                let around = Around { flags, at, in_ns, tracing, tasks };
                let is_known = super::own_text::write(out, own, env, &around);
                if !is_known && !std::mem::replace(&mut kind.is_noted, true) {
                    self.notes.push(format!("{}: {FILES_UNKNOWN}", kind.format.name));
                }
                return;
            }
            Renderer::Syscall(syscall) => {
                syscall.write(out, payload, order, self.flags.verbose);
                out.push(b'\n');
                return;
            }
            Renderer::Program(program) => {
                let begin = out.len();
                let mut env =
                    Env::new(payload, self.machine, &mut self.scratch, &mut self.state.names);
                let printed = program.print(&mut env, out);
                if let Err(fault) = &printed
                    && !std::mem::replace(&mut kind.is_noted, true)
                {
                    self.notes.push(kind.note.take().unwrap_or_else(|| faulty(kind.format, fault)));
                }
                if printed != Err(Fault::TooLong) {
                    out.push(b'\n');
                    return;
                }
                out.truncate(begin);
            }
            Renderer::Fields => self.notes.extend(kind.note.take()),
        }
        out.extend_from_slice(kind.format.name.as_bytes());
        out.push(b':');
        kind.fields.write(out, payload, order, &mut self.state.names);
        out.push(b'\n');
    }

    /// Returns the name of a task.
    pub(crate) fn comm(&self, pid: u32) -> &str {
        self.state.tasks.comm(pid)
    }

    pub(crate) fn irq_flags(&self, out: &mut Vec<u8>, common: context::Common) {
        self.state.tasks.irq_flags(out, common);
    }

    /// Appends the text of one event without the beginning of its line. For an entry or exit of the
    /// function graph, the text has only the part that does not depend on neighbouring events:
    /// `name() {`, `} /* name */`.
    pub(crate) fn body(&mut self, out: &mut Vec<u8>, payload: &[u8], at: EventInfo) {
        self.learn(at.common.id);
        match self.own(at.common.id) {
            Some(Own::GraphEntry(entry)) => {
                let function = entry.function.unsigned(payload, self.order());
                self.state.names.show(out, function, Show::Bare);
                out.extend_from_slice(b"() {");
            }
            Some(Own::GraphExit(exit)) => {
                let function = exit.function.unsigned(payload, self.order());
                out.extend_from_slice(b"} /* ");
                self.state.names.show(out, function, Show::Bare);
                out.extend_from_slice(b" */");
            }
            _ => self.text(out, payload, at, None),
        }
    }

    /// Appends the message of an event of one of the three kinds with a message (option
    /// `printk-msg-only`). Returns false for other events.
    pub(crate) fn message(&mut self, out: &mut Vec<u8>, payload: &[u8], at: EventInfo) -> bool {
        self.learn(at.common.id);
        let Some(own) = self.own(at.common.id).cloned() else { return false };
        let env = Env::new(payload, self.machine, &mut self.scratch, &mut self.state.names);
        super::own_text::message(out, &own, env)
    }

    /// Appends the form of option `raw`.
    fn raw(&mut self, out: &mut Vec<u8>, payload: &[u8], at: EventInfo) {
        if self.flags.context {
            let pid = at.common.pid.cast_signed();
            number(out, Spec::default(), u64::from(pid.unsigned_abs()), pid < 0, 10, false);
            out.push(b' ');
            unsigned(out, u64::from(at.cpu));
            out.push(b' ');
            match self.flags.before {
                None => unsigned(out, at.time),
                // Readings of the clock, as without a relation.
                Some(before) => time_before(out, at.time, before, false, 0),
            }
            out.push(b' ');
        }
        let id = at.common.id;
        match self.kinds.get(usize::from(id)).and_then(Option::as_ref).map(|kind| &kind.renderer) {
            None => {
                unsigned(out, u64::from(id));
                out.extend_from_slice(b" ?\n");
                return;
            }
            Some(Renderer::Own(own)) => {
                let own = own.clone();
                let env = Env::new(payload, self.machine, &mut self.scratch, &mut self.state.names);
                if super::own_text::raw(out, &own, env) {
                    return;
                }
            }
            Some(_) => {}
        }
        out.extend_from_slice(b"type: ");
        unsigned(out, u64::from(id));
        out.push(b'\n');
    }

    /// Appends the line that the function_graph tracer prints in its own way: for all events except
    /// stacks and function entries. Returns false for these and for events without a format.
    fn graph_line(&mut self, out: &mut Vec<u8>, merge: &mut Merge<'_>, at: EventInfo) -> bool {
        let own = self.own(at.common.id).cloned();
        if matches!(own, Some(Own::KernelStack { .. } | Own::Function { .. })) {
            return false;
        }
        let known = self.kinds.get(usize::from(at.common.id)).is_some_and(Option::is_some);
        if !known {
            return false;
        }
        let kept = self.keep(merge);
        match own {
            Some(Own::GraphEntry(entry)) => {
                self.graph.entry(out, &mut self.state, Some(at.lane), (entry, &kept), at, merge);
            }
            Some(Own::GraphExit(exit)) => {
                self.graph.exit(out, &mut self.state, Some(at.lane), exit, &kept, at);
                merge.advance();
            }
            _ => {
                self.graph.comment_begin(out, &mut self.state, at);
                let has_message = self.message(out, &kept, at);
                if !has_message {
                    self.text_without_fields(out, &kept, at);
                }
                if out.last() == Some(&b'\n') {
                    out.pop();
                }
                out.extend_from_slice(b" */\n");
                merge.advance();
            }
        }
        self.kept = kept;
        true
    }
}

/// Appends the text of an event without a format.
fn unknown_type(out: &mut Vec<u8>, id: u16, payload: &[u8], is_of_last_boot: bool) {
    out.extend_from_slice(format!("Unknown type {id}").as_bytes());
    if is_of_last_boot {
        let fields = payload.get(COMMON..).unwrap_or_default();
        out.extend_from_slice(
            fields.iter().fold(":".to_owned(), |hex, byte| format!("{hex} {byte:02x}")).as_bytes(),
        );
    }
    out.push(b'\n');
}
