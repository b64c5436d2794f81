//! Compares texts of the kernel's `trace` file, event by event. It shares no code with the program
//! that is judged.

use lastwords_proof_lab::texts::{Events, without_task};

/// Takes the events of a text in the kernel's `fields` form. Names of tasks are left out: the
/// second boot has lost them.
pub(super) fn events(text: &str) -> Events {
    split(text).into_iter().collect()
}

/// The events of a text in its order: the line of each, and its stack trace.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(frame) = line.strip_prefix(" => ") {
            if let Some(event) = events.last_mut() {
                // An address without a name is shown with the second boot's displacement by some
                // kernels.
                event.push_str(if frame.starts_with("0x") { " => ?" } else { " => " });
                event.push_str(if frame.starts_with("0x") { "" } else { frame });
            }
        } else if let Some(event) = event(line) {
            events.push(event);
        }
    }
    events
}

/// An event without the name of its task, and without numbers that depend on the boot that prints
/// it.
fn event(line: &str) -> Option<String> {
    without_task(line).map(|event| without_values_of_symbols(&event))
}

/// Drops the number behind a symbol: `f+0x0/0x20 (-1872304496)`. A kernel shows the address as if
/// its own code had recorded it. Drops too how far an address is inside a symbol of a module: data
/// of modules lie elsewhere in each boot, and the kernel names them by the code that they happen to
/// be behind.
fn without_values_of_symbols(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut after_symbol = false;
    for word in text.split(' ') {
        // An address of a module without a name: `t=0xffffffffc0123456 (-1073041322)`.
        if let Some((field, address)) = word.split_once("=0x")
            && address.len() == 16
            && address.starts_with("ffffffff")
            && address.as_bytes().get(8).is_some_and(|digit| (b'c'..=b'f').contains(digit))
        {
            words.push(field);
            after_symbol = true;
            continue;
        }
        let is_module = after_symbol && word.starts_with('[') && word.ends_with(']');
        let before = words.last().copied().unwrap_or_default();
        if is_module && !before.contains("+0x0/") {
            words.pop();
            words.push(before.split_once('=').map_or("?", |(field, _)| field));
            continue;
        }
        if !(after_symbol && word.starts_with('(') && word.ends_with(')')) {
            words.push(word);
        }
        after_symbol = is_module || word.contains("+0x") && word.contains("/0x");
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# tracer: nop\n          <...>-7       [000] d.h1.     2.5: a: f=work+0x0/0x20 (-5) n=0x1 (1)\n \
                        => g\n => 0xffff\n          <...>-7       [001] d.h1.     2.6: b: n=0x1 (1)\n";

    #[test]
    fn names_of_tasks_and_displaced_numbers_do_not_count() {
        let other =
            TEXT.replace("<...>", "a [b-c").replace("(-5)", "(-6)").replace("0xffff", "0xeeee");
        let (text, other) = (events(TEXT), events(&other));
        assert_eq!((text.total, text.without(&other).0, other.without(&text).0), (2, 0, 0));
    }

    #[test]
    fn data_of_modules_have_no_place() {
        let line = |place: &str| {
            format!(
                "     x-7       [000] d.h1.     2.5: a: t={place} [m] (-3) f=g+0x0/0x9 [m] (-4) n=1\n"
            )
        };
        let (text, other) = (events(&line("orc+0x5/0x99")), events(&line("orc+0x6/0x9a")));
        assert_eq!((text.total, text.without(&other)), (1, (0, Vec::new())));
        let unnamed =
            events(&line("orc+0x5/0x99").replace("orc+0x5/0x99 [m]", "0xffffffffc0123456"));
        assert_eq!(text.without(&unnamed), (0, Vec::new()));
    }

    #[test]
    fn another_value_or_frame_is_another_event() {
        let text = events(TEXT);
        for other in
            [TEXT.replace("n=0x1 (1)\n =>", "n=0x2 (2)\n =>"), TEXT.replace("=> g", "=> h")]
        {
            assert_eq!(events(&other).without(&text).0, 1);
        }
    }
}
