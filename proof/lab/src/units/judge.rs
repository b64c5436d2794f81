//! Compares texts of events of three writers: the kernel, trace-cmd and our program.

use crate::texts::{Events, without_task};

/// Returns the events of a text, sorted. Left out are the names of tasks, which the kernel of
/// another boot does not know, and the flags, which trace-cmd does not print. Of a number that is
/// there twice, `0x10 (16)`, one is left.
pub(super) fn events(text: &str) -> Vec<String> {
    let mut events: Vec<String> = text.lines().filter_map(event).collect();
    events.sort();
    events
}

fn event(line: &str) -> Option<String> {
    let line = without_task(line)?;
    let (pid, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once(']')?;
    let mut words = rest.split_whitespace();
    let is_time =
        |word: &&str| word.strip_suffix(':').is_some_and(|time| time.parse::<f64>().is_ok());
    let time = words.find(is_time)?;
    let rest = values(words);
    // A marker has the name `print` for trace-cmd and no name for the kernel.
    let rest = rest.strip_prefix("print: ").unwrap_or(&rest);
    Some(format!("{pid} {cpu} {time} {rest}"))
}

/// Joins the words of an event, with decimal numbers. An address that has no name is shown with the
/// displacement of the boot that prints it by some kernels, and left out.
fn values<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut joined: Vec<String> = Vec::new();
    let mut was_hex = false;
    for word in words {
        let twice =
            word.strip_prefix('(').and_then(|word| word.strip_suffix(')')).filter(|_| was_hex);
        let number = word.split_once('=').and_then(|(name, text)| Some((name, number(text)?)));
        was_hex = word.contains("=0x") && number.is_some();
        match (twice.and_then(|word| word.parse::<i64>().ok()), number, joined.last_mut()) {
            (Some(value), _, Some(last)) => {
                let name = last.split('=').next().unwrap_or_default();
                *last = format!("{name}={value}");
            }
            (_, Some((name, value)), _) => joined.push(format!("{name}={value}")),
            _ if word.starts_with("0xffffffff") && word.ends_with(':') => {
                joined.push("?:".to_string())
            }
            _ => joined.push(word.to_string()),
        }
    }
    joined.join(" ")
}

/// Parses a value of a field: `0x10`, `016`, `-1` or `(0)`.
fn number(text: &str) -> Option<i64> {
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(u64::cast_signed),
        None => text.parse().ok(),
    }
}

/// Drops what trace-cmd shows by a name and the kernel by an address: functions.
pub(super) fn without_functions(events: &[String]) -> Vec<String> {
    let without = |event: &String| {
        event.split(' ').filter(|word| !word.starts_with("function=")).collect::<Vec<_>>().join(" ")
    };
    events.iter().map(without).collect()
}

/// Names the function that writes markers where the kernel could not. Linux 6.12 does not know the
/// addresses of a boot that itself found events of an earlier one in the memory. The bundle that is
/// used for a saved file is of the right boot.
pub(super) fn with_named_markers(events: &[String]) -> Vec<String> {
    events.iter().map(|event| event.replacen(" ?: ", " tracing_mark_write: ", 1)).collect()
}

/// Counts the events of `truth` that are not in `ours`, and the other way round; with an example of
/// each.
pub(super) fn differ(truth: &[String], ours: &[String]) -> (usize, usize, Vec<String>) {
    let [truth, ours] = [truth, ours].map(|events| events.iter().cloned().collect::<Events>());
    let ((missing, lacks), (invented, has)) = (truth.without(&ours), ours.without(&truth));
    let example =
        |what: &str, events: &[&str]| events.first().map(|event| format!("{what} {event}"));
    let examples = [example("missing", &lacks), example("invented", &has)];
    (missing, invented, examples.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_each_writer_is_the_same() {
        let kernel = "# tracer: nop\n           <...>-74      [001] d.h1.     1.000002: irq_handler_entry: irq=4 name=a b\n";
        let trace_cmd = "cpus=2\n              sh-74    [001]     1.000002: irq_handler_entry:     irq=4 name=a b\n";
        let (truth, ours) = (events(kernel), events(trace_cmd));
        assert_eq!(truth, ["74 001 1.000002: irq_handler_entry: irq=4 name=a b"]);
        assert_eq!(differ(&truth, &ours), (0, 0, vec![]));
        let (missing, invented, examples) =
            differ(&truth, &events(&trace_cmd.replace("irq=4", "irq=5")));
        assert_eq!((missing, invented, examples.len()), (1, 1, 2));
        assert_eq!(differ(&[truth.as_slice(), truth.as_slice()].concat(), &ours).0, 1);
    }

    #[test]
    fn fields_are_numbers() {
        let kernel = "      <idle>-0       [000] d.h1.     1.5: x: pid=0x12 (18) timer=0xffff800000000000 (-140737488355328) s=-1 name=a (b)\n";
        let trace_cmd = "      <idle>-0     [000]     1.5: x:   pid=18 timer=0xffff800000000000 s=-1 name=a (b)\n";
        assert_eq!(events(kernel), events(trace_cmd));
        assert_eq!(events(kernel), ["0 000 1.5: x: pid=18 timer=-140737488355328 s=-1 name=a (b)"]);
        assert_ne!(events(kernel), events(&trace_cmd.replace("pid=18", "pid=19")));
        assert_eq!(
            events(kernel),
            events(&trace_cmd.replace("pid=18", "pid=018").replace("s=-1", "s=(-1)"))
        );
        assert_eq!(
            without_functions(&["0 000 1.5: x: function=-5 now=1".into()]),
            ["0 000 1.5: x: now=1"]
        );
    }

    #[test]
    fn a_marker_has_one_name() {
        let kernel = "      sh-1       [000] .....    17.5: tracing_mark_write: boot 1 marker 2\n";
        let trace_cmd = "      sh-1       [000]    17.5: print:                tracing_mark_write: boot 1 marker 2\n";
        assert_eq!(events(kernel), events(trace_cmd));
        let unnamed = |address: &str| events(&kernel.replace("tracing_mark_write", address));
        assert_eq!(unnamed("0xffffffff8361cdea"), unnamed("0xffffffff81e1cdea"));
        assert_ne!(unnamed("0xffffffff8361cdea"), events(kernel));
        assert_eq!(with_named_markers(&unnamed("0xffffffff8361cdea")), events(kernel));
        assert_eq!(with_named_markers(&unnamed("schedule")), unnamed("schedule"));
    }
}
