//! Lists the BPF maps.

use crate::idr;
use crate::lost;
use crate::value::Layout;
use crate::words::Words;
use lastwords_bytes::Error as BytesError;
use lastwords_kernel::btf::TypeId;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::{Cause, Gap};
use serde::Serialize;

/// A BPF map.
#[derive(Debug, Clone, Serialize)]
pub struct Map {
    /// Id of the map.
    pub id: u32,
    /// Name of the map; it may be empty.
    pub name: String,
    /// Kind of the map in the kernel's word, such as `ringbuf`.
    pub kind: String,
    /// Size of a key, bytes.
    pub key_size: u32,
    /// Size of a value, bytes.
    pub value_size: u32,
    /// Most entries; for a ring buffer its size in bytes.
    pub max_entries: u32,
    /// Flags that the map was created with.
    pub flags: u32,
    /// Address of its `struct bpf_map`.
    pub address: u64,
    /// Type of the keys; none if the map does not tell.
    #[serde(skip)]
    pub(crate) key: Option<Layout>,
    /// Type of the values.
    #[serde(skip)]
    pub(crate) value: Option<Layout>,
}

impl Map {
    /// Id, kind and name in words: `map 4 (ringbuf events)`.
    #[must_use]
    pub fn words(&self) -> String {
        let space = if self.name.is_empty() { "" } else { " " };
        format!("map {} ({}{space}{})", self.id, self.kind, self.name)
    }

    /// Returns true if the map says of which type its values are.
    #[must_use]
    pub fn is_typed(&self) -> bool {
        self.value.is_some()
    }
}

/// Returns all maps. Those that cannot be read become gaps.
///
/// # Errors
/// The kernel has none, or the image lacks their list.
pub(crate) fn all(kernel: &Kernel, words: &Words, gaps: &mut Vec<Gap>) -> Result<Vec<Map>, Error> {
    let mut maps = Vec::new();
    for (id, address) in idr::entries(kernel, "map_idr", "the list of BPF maps", gaps)? {
        let object = kernel.object("bpf_map", address);
        match object.and_then(|object| Ok((map(&object, id, words)?, object))) {
            Ok((map, object)) => maps.push(typed(kernel, map, &object, gaps)),
            Err(error) => gaps.push(lost(&format!("BPF map {id} at {address:#x}"), &error)),
        }
    }
    Ok(maps)
}

/// Checks that an object has the id by which it was found: a page may read as zero.
///
/// # Errors
/// It has another one, or the image lacks it.
pub(crate) fn check_id(object: &Object<'_>, id: u32) -> Result<(), Error> {
    match object.u64("id")? {
        own if own == u64::from(id) => Ok(()),
        own => {
            let expected = format!("id {id}");
            Err(BytesError::value(&object.type_name(), object.place(), own, &expected).into())
        }
    }
}

fn map(object: &Object<'_>, id: u32, words: &Words) -> Result<Map, Error> {
    check_id(object, id)?;
    Ok(Map {
        id,
        name: object.text("name")?,
        kind: words.map(object.u64("map_type")?),
        key_size: object.fit("key_size")?,
        value_size: object.fit("value_size")?,
        max_entries: object.fit("max_entries")?,
        flags: object.fit("map_flags")?,
        address: object.place(),
        key: None,
        value: None,
    })
}

/// Adds the types of keys and values, if the map has BTF. BTF that cannot be read is a gap.
fn typed(kernel: &Kernel, mut map: Map, object: &Object<'_>, gaps: &mut Vec<Gap>) -> Map {
    let types = || -> Result<_, Error> {
        let ids = [object.fit("btf_key_type_id")?, object.fit("btf_value_type_id")?];
        let [key, value] = ids.map(|id: u32| TypeId(id));
        match object.pointer_or_null("btf")?.filter(|_| ids != [0, 0]) {
            Some(btf) => Ok(Some((kernel.types_in(&btf)?, key, value))),
            None => Ok(None),
        }
    };
    match types() {
        Ok(Some((types, key, value))) => {
            let order = kernel.memory.byte_order();
            let layout = |id: TypeId| {
                let types = std::sync::Arc::clone(&types);
                (id.0 != 0).then_some(Layout { types, id, order })
            };
            (map.key, map.value) = (layout(key), layout(value));
        }
        Ok(None) => {}
        Err(error) => gaps.push(Gap {
            cause: Cause::Unknown,
            ..lost(&format!("the types of {}", map.words()), &error)
        }),
    }
    map
}
