//! Targets of persistent ring buffers and of the kernel images that describe them.

use crate::image::Bytes;
use lastwords_bytes::Budget;
use lastwords_ftrace::memory as ftrace;
use lastwords_ftrace::persistent;
use lastwords_ftrace::{Ring, page};
use lastwords_image::{Image, unwatched};
use lastwords_kernel::vmlinux;
use std::sync::Arc;

/// A region, or memory in which regions are found. Each event of a delivered sub-buffer is inside
/// of it.
pub fn persistent(data: &[u8]) {
    let image: Arc<dyn Image> = Arc::new(Bytes::new(data.into(), data.len(), None));
    let budget = Budget::for_input(data.len() as u64);
    let mut places = persistent::find(image.as_ref(), &[], &budget, &unwatched).unwrap_or_default();
    places.push(0..data.len() as u64);
    for place in places {
        let Ok(region) =
            persistent::read(&image, place.start, place.end - place.start, &[], &budget)
        else {
            continue;
        };
        let mut bytes = Vec::new();
        for (cpu, row) in region.cpus().iter().enumerate() {
            for index in 0..row.sub_buffers {
                let info = region.sub_buffer(cpu, index, &mut bytes);
                for event in page::Events::new(
                    &bytes,
                    region.header_page(),
                    region.layout.byte_order,
                    info.committed,
                ) {
                    let Ok(event) = event else { break };
                    assert!(event.payload.end <= bytes.len(), "{event:?}");
                }
            }
        }
    }
}

/// A kernel's image: a bzImage or an ELF file.
pub fn kernel_image(data: &[u8]) {
    let budget = Arc::new(Budget::for_input(data.len() as u64));
    let Ok(kernel) = vmlinux::open(data.to_vec(), budget) else { return };
    let kernel = Arc::new(kernel);
    let Ok(tracing) = ftrace::compiled_description(&kernel) else { return };
    tracing.symbols.each(&mut |row| assert!(row.name.len() <= 4096));
    let _ = (kernel.build_id(), tracing.symbols.at(0xffff_ffff_8100_0000));
}
