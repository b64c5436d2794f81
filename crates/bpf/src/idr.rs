//! Reads an IDR, the kernel's table from ids to pointers: a radix tree of nodes
//! (`include/linux/{idr,xarray}.h`).

use crate::lost;
use lastwords_bytes::Error as BytesError;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::Gap;

/// Values up to this one in a slot are marks of the tree itself, where the lowest bits tell a node.
const MARKS_END: u64 = 4096;
/// The lowest bits of a slot: 0 is a pointer, 2 a node or a mark, 1 and 3 a number.
const TAG: u64 = 3;
const NODE: u64 = 2;

/// An IDR that is being read.
struct Tree<'a> {
    kernel: &'a Kernel,
    /// Words for the tree.
    what: &'a str,
    /// Address of the tree's head, which all its nodes name.
    head: u64,
    first: u64,
    found: Vec<(u32, u64)>,
    gaps: &'a mut Vec<Gap>,
}

/// Returns the entries of the IDR `symbol` in the order of their ids: id and address. Nodes that
/// cannot be read become gaps.
///
/// # Errors
/// The kernel has no such IDR, or the image lacks its head.
pub(crate) fn entries(
    kernel: &Kernel,
    symbol: &str,
    what: &str,
    gaps: &mut Vec<Gap>,
) -> Result<Vec<(u32, u64)>, Error> {
    let idr = kernel.variable(symbol, "idr")?;
    let (head, first) = (idr.address("idr_rt.xa_head")?, idr.u64("idr_base")?);
    let place = idr.at("idr_rt")?.place();
    let mut tree = Tree { kernel, what, head: place, first, found: Vec::new(), gaps };
    tree.slot(head, 0, u64::BITS.into());
    Ok(tree.found)
}

impl Tree<'_> {
    /// Takes what a slot has. `above` is the shift of the node that has the slot.
    fn slot(&mut self, slot: u64, index: u64, above: u64) {
        match slot & TAG {
            0 if slot != 0 => {
                let id = u32::try_from(self.first.saturating_add(index));
                self.found.extend(id.ok().map(|id| (id, slot)));
            }
            NODE if slot > MARKS_END => {
                let node = slot.wrapping_sub(NODE);
                if let Err(error) = self.node(node, index, above) {
                    self.gaps.push(lost(&format!("{}, node at {node:#x}", self.what), &error));
                }
            }
            _ => {}
        }
    }

    fn node(&mut self, place: u64, index: u64, above: u64) -> Result<(), Error> {
        let node = self.kernel.object("xa_node", place)?;
        let (shift, slots) = (node.u64("shift")?, node.count("slots")?);
        // Each level is lower than the one above it, so that a loop ends.
        if shift >= above || !(1..=64).contains(&slots) {
            let expected = "a node that is lower than the one above it";
            return Err(BytesError::value("xa_node", place, shift, expected).into());
        }
        // A page that reads as zero would be a node without entries.
        let head = node.address("array")?;
        if head != self.head {
            let expected = format!("the tree at {:#x}", self.head);
            return Err(BytesError::value("xa_node", place, head, &expected).into());
        }
        self.kernel.budget().steps("xa_node", slots)?;
        let (mut used, mut first_hole) = (0u64, None);
        for at in 0..slots {
            match slot_of(&node, at) {
                Ok(0) => {}
                Ok(slot) => {
                    used = used.saturating_add(1);
                    let index = index.saturating_add(at.checked_shl(low(shift)).unwrap_or(0));
                    self.slot(slot, index, shift);
                }
                Err(error) => first_hole = first_hole.or(Some(error)),
            }
        }
        first_hole.map_or(Ok(()), Err)?;
        match node.u64("count")? {
            count if count == used => Ok(()),
            count => {
                let expected = format!("{used} slots, which are not empty");
                Err(BytesError::value("xa_node", place, count, &expected).into())
            }
        }
    }
}

fn low(shift: u64) -> u32 {
    u32::try_from(shift).unwrap_or(u32::MAX)
}

fn slot_of(node: &Object<'_>, at: u64) -> Result<u64, Error> {
    node.element("slots", at)?.u64("")
}
