//! The CPU of a stream, as its packets name it.

use super::stream::{Next, Reader};
use super::trace::{Stream, Trace};
use lastwords_trace::class::Scope;
use lastwords_trace::visit::{NodeId, Visitor};

/// Returns the packet context's field `cpu_id` of the stream's first packet; none if there is no
/// such field, or its value is no CPU.
#[must_use]
pub fn cpu(trace: &Trace, stream: &Stream) -> Option<u32> {
    if let Some(memory) = &stream.memory {
        return memory.cpu;
    }
    let code = trace.program.code(Scope::PacketContext, stream.class, 0)?;
    let node = code.nodes().iter().position(|node| node.name == "cpu_id")?;
    let mut reader = Reader::new(trace, stream);
    loop {
        match reader.advance() {
            Next::Packet => break,
            Next::Event(_) | Next::End => return None,
            Next::Loss(_) | Next::Fault(_) => {}
        }
    }
    let packet = *reader.packet()?;
    let (program, decoder, bytes) = reader.parts();
    let mut found = Field { node: NodeId::try_from(node).ok()?, value: None };
    program.visit_context(decoder, &packet, bytes.bytes, &mut found).ok()?;
    found.value.and_then(|cpu| u32::try_from(cpu).ok()).filter(|cpu| *cpu != u32::MAX)
}

/// Keeps the value of one field.
struct Field {
    node: NodeId,
    value: Option<u64>,
}

impl Visitor for Field {
    fn integer(&mut self, node: NodeId, value: u64) {
        if node == self.node {
            self.value = Some(value);
        }
    }
}
