//! Flame graphs: of a service's spans, and of stacks that are made here.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use lastwords_testkit::ctf::Stream;
use lastwords_testkit::random::Random;
use serde_json::{Value, json};

use super::Run;
use super::made::describe;

/// The context of events, which is that of a kernel's ftrace, and the events.
const CONTEXT: &str = "u32 flags; i32 pid; string comm; u64 lost; string text;";
const EVENTS: &str = r#"
event { name = "ftrace:kernel_stack"; id = 0; stream_id = 0; fields := struct { u32 size; }; };
"#;
/// Functions, the outermost first; each may be the end of a stack.
const FUNCTIONS: [&[&str]; 3] =
    [&["entry", "idle"], &["do_syscall", "do_exit", "do_idle"], &["schedule", LONG, "a.isra.0"]];
/// A name that is wider than a table of the panel.
const LONG: &str = "read_one_of_many_things_that_a_file_system_keeps_in_its_blocks_and_that_nobody_has_read_since_it_was_mounted_for_the_first_time_on_this_machine_or_on_another_one_that_had_the_disk";
const STACKS: u64 = 400;

/// Writes stacks, and returns how many there are of each path.
fn write(folder: &Path) -> Result<BTreeMap<String, u64>> {
    describe(folder, ["stacks", "", CONTEXT, EVENTS])?;
    let (mut stream, mut counts, mut rng) = (Stream::default(), BTreeMap::new(), Random(7));
    for at in 0..STACKS {
        let depth = 1 + rng.below(3) as usize;
        let stack: Vec<&str> = FUNCTIONS[..depth]
            .iter()
            .map(|level| level[rng.below(level.len() as u64) as usize])
            .collect();
        for depth in 1..=depth {
            *counts.entry(stack[..depth].join(";")).or_insert(0) += 1;
        }
        let lines: String =
            stack.iter().rev().map(|name| format!(" => {name}+0x1f/0x70\n")).collect();
        let time = 1000 + at * 10;
        let head = [&0u16.to_le_bytes()[..], &time.to_le_bytes()].concat();
        let context = [&0u32.to_le_bytes()[..], &7i32.to_le_bytes(), b"app\0", &[0; 8]].concat();
        let text = format!("<stack trace>\n{lines}\0");
        stream.put(time, &[&head, &context, text.as_bytes(), &[0; 4]].concat());
    }
    stream.close(0);
    std::fs::write(folder.join("stream_0"), &stream.file)?;
    Ok(counts)
}

impl Run<'_> {
    /// Judges the flame graph of stacks.
    pub(super) fn stacks(&self) -> Result<()> {
        let folder = self.folder.join("stacks");
        let counts = write(&folder)?;
        self.open(&self.page(&folder, "stacks", &[])?.0, "stacks")?;
        self.flame("stacks", &json!(counts))?;
        self.show_flame("flame of stacks")
    }

    /// Judges one of the flame graphs of the page that is open: of stacks that are so many, or of
    /// spans.
    pub(super) fn flame(&self, of: &str, stacks: &Value) -> Result<()> {
        let wrong = self.browser.script(include_str!("flame.js"), json!([of, stacks]))?;
        ensure!(wrong == json!([]), "{wrong:#}");
        Ok(())
    }

    /// Takes a picture of the flame graph of the page that is open.
    pub(super) fn show_flame(&self, what: &str) -> Result<()> {
        self.browser.ask("window.lastwords.panel.show('flame')")?;
        self.browser.wait("document.getElementById('flame')")?;
        self.picture(what).map(drop)
    }
}
