//! Pages on the heap: no large contiguous mapping, nothing outside the process; for recovery from a core.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed};

use lastwords_abi::session::BACKEND_HEAP;

use super::mapping::Backing;
use super::{Backend, BackendError, Mapping, Plan};

/// Bytes of a page of stream data.
const PAGE: u32 = 4096;

/// Regions are blocks of the heap; the data of streams is pages that [`Mapping::fill_pages`] allocates one by one.
#[derive(Debug, Default)]
pub struct HeapBackend;

impl Backend for HeapBackend {
    fn kind(&self) -> u32 {
        BACKEND_HEAP
    }

    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        plans.iter().map(block).collect()
    }

    fn page_size(&self) -> u32 {
        PAGE
    }

    fn shared(&self) -> bool {
        false
    }

    fn note(&self) -> String {
        "pages of 4096 bytes on the heap; other processes cannot see them, a core has them".to_owned()
    }
}

fn block(plan: &Plan) -> Result<Mapping, BackendError> {
    let layout = usize::try_from(plan.len)
        .ok()
        .filter(|len| *len > 0)
        .and_then(|len| Layout::from_size_align(len, PAGE as usize).ok())
        .ok_or_else(|| BackendError::invalid("the heap", 0, plan.len, "no such length can be allocated"))?;
    // SAFETY: the layout's size is not 0.
    let start = unsafe { alloc_zeroed(layout) };
    let start = NonNull::new(start).ok_or_else(|| BackendError::no_memory("the heap", plan.len))?;
    Ok(Mapping { name: plan.name.clone(), start, len: plan.len, backing: Backing::Heap })
}
