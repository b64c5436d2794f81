//! Checks whether a layout matches the tracer modules in an image: pointers must lead back to their
//! origin.

use super::{Memory, SESSION};
use crate::{Header, Shape};
use lastwords_kernel::{Error, Object};

/// Checks the layout: every session's public part must point back to the session, and its cache
/// must have the session's UUID. The rings of its channels must point back to their channel, and a
/// started packet must begin with a magic. Structures that the image lacks prove nothing. If there
/// are sessions, at least one must prove the layout.
pub(super) fn fits(memory: &Memory<'_>, head: u64) -> Result<(), Error> {
    let link = memory.first_member(SESSION, &["node", "list"])?;
    let mut proven = true;
    let mut why = None;
    for (n, entry) in memory.list(head, SESSION, link)?.enumerate() {
        proven &= n > 0;
        match entry.and_then(|session| one(memory, &session)) {
            Ok(()) => proven = true,
            Err(error @ Error::Hole { .. }) => why = Some(error),
            Err(error) => return Err(error),
        }
    }
    why.filter(|_| !proven).map_or(Ok(()), Err)
}

fn one(memory: &Memory<'_>, session: &Object<'_>) -> Result<(), Error> {
    let public = session.pointer("pub")?;
    same(public.address("priv")?, session.place(), session, "pub")?;
    if let Some(cache) = session.pointer_or_null("metadata_cache")? {
        let (written, room) = (cache.u64("metadata_written")?, cache.u64("cache_alloc")?);
        let is_own = cache.bytes("uuid")? == session.bytes("uuid")?;
        if !is_own || written > room {
            return Err(misfit(session, "metadata_cache"));
        }
    }
    // The session is proven; rings that the image lacks do not disprove it.
    match channels(memory, session) {
        Err(Error::Hole { .. }) => Ok(()),
        fits => fits,
    }
}

fn channels(memory: &Memory<'_>, session: &Object<'_>) -> Result<(), Error> {
    const CHANNEL: &str = "lttng_kernel_channel_buffer_private";
    let head = session.at(memory.first_member(SESSION, &["chan_head", "chan"])?)?.place();
    let link = memory.first_member(CHANNEL, &["parent.node", "node"])?;
    for entry in memory.list(head, CHANNEL, link)? {
        let channel = entry?;
        if super::session::is_counter(memory, &channel)? {
            continue;
        }
        let Some(rb) = channel.pointer_or_null("rb_chan")? else { continue };
        let backend = rb.at("backend")?;
        let (size, count) = (backend.u64("subbuf_size")?, backend.u64("num_subbuf")?);
        if size.checked_mul(count) != Some(backend.u64("buf_size")?) {
            return Err(misfit(&backend, "buf_size"));
        }
        for (_, address) in super::ring::rings(memory, &backend)? {
            let buffer = memory.object("lttng_kernel_ring_buffer", address)?;
            same(buffer.address("backend.chan")?, rb.place(), &buffer, "backend.chan")?;
            begins(memory, &buffer, count)?;
        }
    }
    Ok(())
}

/// Checks that a set of pages begins with a packet if anything was written. Sets that the image
/// lacks prove nothing.
fn begins(memory: &Memory<'_>, buffer: &Object<'_>, count: u64) -> Result<(), Error> {
    if buffer.u64("offset")? == 0 {
        return Ok(());
    }
    let kernel = memory.kernel;
    let shape = Shape { order: kernel.memory.byte_order(), word: kernel.memory.word_size() };
    let mut all_there = true;
    for set in 0..count.min(64) {
        let page = buffer
            .element("backend.array", set)
            .and_then(|pages| pages.pointer("")?.element("p", 0)?.address("virt"));
        let mut bytes = vec![0; shape.len()];
        let read = page.map(|page| kernel.memory.read(page, &mut bytes).is_ok());
        match (read, Header::parse(&bytes, shape)) {
            // Packets of metadata have another magic and layout.
            (Ok(true), Ok(header)) if header.has_magic() || header.magic == 0x75d1_1d57 => {
                return Ok(());
            }
            (Ok(true), _) => {}
            _ => all_there = false,
        }
    }
    if all_there { Err(misfit(buffer, "backend.array")) } else { Ok(()) }
}

fn same(found: u64, expected: u64, object: &Object<'_>, member: &str) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(misfit(object, member)) }
}

fn misfit(object: &Object<'_>, member: &str) -> Error {
    Error::Shape {
        structure: format!("{} at {:#x}", object.type_name(), object.place()),
        member: member.to_owned(),
        expected: "as in the known releases of lttng-modules (give the modules' own types with --module)",
    }
}
