//! Finds LTTng metadata in raw memory: the cache of the kernel tracer, and the copies of LTTng's
//! daemons.
//!
//! Their pages are scattered. They are put in order with the page tables of the kernel and of
//! processes, which are in the same memory.

use super::metadata::{BEGINNING_OF_CACHE, Metadata, beginning};
use lastwords_bytes::{Budget, Error};
use lastwords_image::process_pages::{PAGE, PAGE_LEN, PageTables, Whose, pieces};
use lastwords_image::{Image, Watch};
use std::collections::HashSet;
use std::sync::Arc;

/// Most starts of metadata that are followed, and most pages of a text.
const BEGINNINGS_MAX: usize = 1 << 10;
const PAGES_MAX: u64 = 1 << 14;

/// Finds metadata of these traces in `image`, an image of physical memory; there may be several
/// copies for a trace.
///
/// # Errors
/// The budget is spent.
pub fn texts(
    image: &Arc<dyn Image>,
    traces: &[[u8; 16]],
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<Metadata>, Error> {
    let begins = beginnings(image, budget, watch)?;
    let firsts: HashSet<u64> = begins.iter().map(|at| at & !PAGE.saturating_sub(1)).collect();
    let mut found: Vec<Metadata> = Vec::new();
    if firsts.is_empty() {
        return Ok(found);
    }
    let tables = [Whose::Kernel, Whose::Process]
        .map(|whose| PageTables::find(&**image, &firsts, whose, budget, watch));
    let [kernel, process] = tables;
    let tables = [kernel?, process?];
    for at in begins {
        let (first, inside) = (at & !PAGE.saturating_sub(1), at % PAGE);
        let mut runs: Vec<Vec<u64>> =
            tables.iter().flat_map(|tables| tables.whole_runs(first, PAGES_MAX)).collect();
        // Without a page table, try the physically adjacent pages.
        runs.push((0..PAGES_MAX).map(|n| first.saturating_add(n.saturating_mul(PAGE))).collect());
        for run in runs {
            let text = text(&**image, &run, inside, budget)?;
            if traces.iter().any(|uuid| text.names(uuid)) && !found.contains(&text) {
                found.push(text);
            }
        }
    }
    Ok(found)
}

/// Finds the addresses of starts of metadata.
fn beginnings(
    image: &Arc<dyn Image>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
    pieces(&**image, "looking for metadata", budget, watch, |at, bytes| {
        let mut add = |offset: usize| {
            if found.len() < BEGINNINGS_MAX {
                budget.steps("metadata", 1)?;
                found.push(at.saturating_add(offset as u64));
            }
            Ok::<(), Error>(())
        };
        for (n, page) in bytes.chunks(PAGE_LEN).enumerate() {
            if page.starts_with(BEGINNING_OF_CACHE) {
                add(n.saturating_mul(PAGE_LEN))?;
            }
        }
        let mut from = 0;
        while let Some(offset) = beginning(bytes, from) {
            add(offset)?;
            from = offset.saturating_add(1);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads the text that starts at offset `inside` of the first page, up to the first byte that is no
/// text or the start of another text.
fn text(image: &dyn Image, pages: &[u64], inside: u64, budget: &Budget) -> Result<Metadata, Error> {
    let mut metadata = Metadata { text: Vec::new(), is_partial: true };
    let mut page = vec![0u8; PAGE_LEN];
    let mut skip = usize::try_from(inside).unwrap_or(0);
    for at in pages {
        if image.read(*at, &mut page).is_err() {
            break;
        }
        budget.bytes("metadata", PAGE)?;
        if metadata.append(page.get(std::mem::take(&mut skip)..).unwrap_or_default()) {
            break;
        }
    }
    metadata.cut();
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use lastwords_image::unwatched;

    #[test]
    fn the_pages_of_a_cache_are_put_together() {
        let whole = format!(
            "typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;\n{}\
             trace {{ uuid = \"01020304-0506-0708-090a-0b0c0d0e0f10\"; }};\nevent {{ name = \"a\"; }};\n",
            "/* long */\n".repeat(400)
        );
        // The second page of the text is before the first in memory, and another text follows the
        // first page.
        let place = |at: u64, text: &[u8]| -> Vec<(u64, u64)> {
            let words = text.chunks(8).map(|part| {
                let mut word = [0u8; 8];
                word[..part.len()].copy_from_slice(part);
                u64::from_le_bytes(word)
            });
            words.enumerate().map(|(n, word)| (at + 8 * n as u64, word)).collect()
        };
        let (first, second) = whole.as_bytes().split_at(4096);
        let mut words =
            [place(0x8000, first), place(0x4000, second), place(0x9000, &[b'x'; 64])].concat();
        words.extend([(0x3010, 0x8000_0000_0000_8163), (0x3018, 0x8000_0000_0000_4163)]);
        let image: Arc<dyn Image> = memory(&words);
        let uuid = std::array::from_fn(|n| n as u8 + 1);
        let found =
            texts(&image, &[uuid], &Budget::default(), &unwatched).expect("within the budget");
        assert_eq!(
            found.iter().map(|text| text.text.as_slice()).collect::<Vec<_>>(),
            [whole.as_bytes()]
        );
        let other =
            texts(&image, &[[9; 16]], &Budget::default(), &unwatched).expect("within the budget");
        assert!(other.is_empty());
    }
}
