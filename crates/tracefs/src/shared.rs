//! Settings that exist once for all instances, and how they are restored.

use crate::instance::Instance;
use serde::{Deserialize, Serialize};

/// A setting of the whole machine that a recording changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    /// The file below the folder of tracefs.
    pub(crate) file: String,
    /// Its text before the recording.
    pub(crate) before: String,
    /// Its text during the recording; none if the kernel makes another text of what is written.
    pub(crate) set: Option<String>,
}

impl Shared {
    /// Adds the settings of one more instance. If two instances want different values, the last one
    /// is set, so that the value during the recording is not known here.
    pub(crate) fn merge(all: &mut Vec<Self>, more: &[Self]) {
        for shared in more {
            match all.iter_mut().find(|known| known.file == shared.file) {
                Some(known) if known.set != shared.set => known.set = None,
                Some(_) => {}
                None => all.push(shared.clone()),
            }
        }
    }

    /// Returns true if the setting is not as it was before.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn is_changed(&self, top: &Instance) -> anyhow::Result<bool> {
        Ok(top.setting(&self.file)? != self.before)
    }

    /// Makes the setting again what it was, and returns whether it had to. A value that somebody
    /// else has set meanwhile stays.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn restore(&self, top: &Instance) -> anyhow::Result<bool> {
        let now = top.setting(&self.file)?;
        if now == self.before || self.set.as_ref().is_some_and(|set| *set != now) {
            return Ok(false);
        }
        top.set(&self.file, &self.before).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_the_recording_set_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let top = Instance::top(folder.path());
        let path = folder.path().join("max_graph_depth");
        let depth = Shared {
            file: "max_graph_depth".to_owned(),
            before: "0".to_owned(),
            set: Some("2".to_owned()),
        };
        for (now, restores) in [("0\n", false), ("2\n", true), ("7\n", false)] {
            fs::write(&path, now).unwrap();
            assert_eq!(depth.is_changed(&top).unwrap(), now != "0\n");
            assert_eq!(depth.restore(&top).unwrap(), restores, "{now}");
            // The file of a test has what was appended; the kernel's has the last value.
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text.ends_with("0\n"), now == "0\n" || restores, "{text}");
        }
        let list =
            Shared { file: "set_graph_function".to_owned(), before: String::new(), set: None };
        let path = folder.path().join("set_graph_function");
        fs::write(&path, "vfs_read\n").unwrap();
        assert!(list.restore(&top).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }
}
