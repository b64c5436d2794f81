//! Compares names of functions and texts of modules' events with those that the boot printed that
//! recorded them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use lastwords_proof_lab::texts::{read, without_task};

/// How many names of functions in one text are those of another: in stack traces, and in fields of
/// events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) right: usize,
    pub(super) of_modules: usize,
    /// Functions of modules in whose place is the address that the event recorded.
    pub(super) unnamed: usize,
    pub(super) wrong: usize,
    pub(super) example: Option<String>,
}

/// Where a boot had the functions of its kernel and its modules, as it told itself.
pub(super) struct Addresses {
    /// By name of a function: its addresses, and whether one is a module's.
    functions: BTreeMap<String, (BTreeSet<u64>, bool)>,
    /// Addresses of the kernel's code, and of modules by name.
    pub(super) kernel: u64,
    pub(super) modules: BTreeMap<String, u64>,
}

/// A function in an event or in a stack trace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    name: String,
    /// The address, where the kernel printed it too.
    address: Option<u64>,
}

impl Addresses {
    /// Reads what a boot left in a folder.
    pub(super) fn read(tree: &Path) -> Result<Self> {
        let (kallsyms, loaded) = (read(&tree.join("kallsyms"))?, read(&tree.join("modules"))?);
        let mut functions: BTreeMap<String, (BTreeSet<u64>, bool)> = BTreeMap::new();
        for line in kallsyms.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(name)) = (words.next(), words.nth(1)) else { continue };
            let (addresses, is_of_module) = functions.entry(name.into()).or_default();
            addresses.insert(u64::from_str_radix(address, 16)?);
            *is_of_module |= words.next().is_some();
        }
        let text = functions.get("_text").and_then(|(addresses, _)| addresses.first().copied());
        let address = |line: &str| {
            Some((
                line.split_whitespace().next()?.to_string(),
                hex(line.split_whitespace().nth(5)?)?,
            ))
        };
        let modules = loaded.lines().filter_map(address).collect();
        Ok(Self { functions, kernel: text.context("kallsyms has no _text")?, modules })
    }

    fn is_of_module(&self, name: &str) -> bool {
        self.functions.get(name).is_some_and(|(_, is_of_module)| *is_of_module)
    }

    /// The event recorded this address of a function. Only that which the kernel printed is right,
    /// and else, where a function begins.
    fn is_at(&self, function: &Function, address: u64) -> bool {
        let begins = || {
            self.functions
                .get(&function.name)
                .is_some_and(|(addresses, _)| addresses.contains(&address))
        };
        function.address.map_or_else(begins, |recorded| recorded == address)
    }

    /// Compares the names of functions in a text with those in the text of the boot that recorded
    /// the events.
    pub(super) fn compare(&self, truth: &str, ours: &str) -> Result<Names> {
        let ours = named(ours);
        let mut names = Names::default();
        for (key, wanted) in named(truth) {
            let found = ours.get(&key);
            for (at, function) in wanted.iter().enumerate() {
                let is_frame = key.contains("<stack trace>");
                ensure!(
                    !is_frame || function.address.is_some(),
                    "{key}: the kernel did not print addresses of frames"
                );
                let is_of_module = self.is_of_module(&function.name);
                match found.and_then(|found| found.get(at)) {
                    Some(found) if found.name == function.name => {
                        names.right += 1;
                        names.of_modules += usize::from(is_of_module);
                    }
                    Some(found)
                        if is_of_module
                            && hex(&found.name)
                                .is_some_and(|found| self.is_at(function, found)) =>
                    {
                        names.unnamed += 1;
                    }
                    found => {
                        names.wrong += 1;
                        let found = found.map_or("nothing", |found| &found.name);
                        names.example.get_or_insert_with(|| {
                            format!("{key}: {found} in place of {function:x?}")
                        });
                    }
                }
            }
        }
        Ok(names)
    }
}

/// A number in hexadecimal digits behind `0x`, as an address without name is shown.
fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Functions of the events of a text, by process, CPU, time and name of the event, and by how many
/// such are before it.
fn named(text: &str) -> BTreeMap<String, Vec<Function>> {
    let mut events: BTreeMap<String, Vec<Function>> = BTreeMap::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines() {
        if let Some(frame) = line.strip_prefix(" => ") {
            // `name`, or `name <address>`.
            let (name, address) = frame.split_once(" <").unwrap_or((frame, ""));
            let address =
                address.strip_suffix('>').and_then(|address| u64::from_str_radix(address, 16).ok());
            events.entry(last.clone()).or_default().push(Function { name: name.into(), address });
            continue;
        }
        let Some(event) = without_task(line) else { continue };
        let mut words = event.split_whitespace();
        let (parts, name) = ([words.next(), words.next(), words.nth(1)], event.split(": ").nth(1));
        let key = parts
            .into_iter()
            .chain([name])
            .map(Option::unwrap_or_default)
            .collect::<Vec<_>>()
            .join(" ");
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        last = format!("{key} #{count}");
        let functions = event.split_whitespace().filter_map(|word| word.strip_prefix("function="));
        let functions = functions.map(|name| Function { name: name.to_string(), address: None });
        events.entry(last.clone()).or_default().extend(functions);
    }
    events
}

/// Compares the lines of the events of modules, given by name: how many lines of the truth are in a
/// text as they are there, and one that is not.
pub(super) fn lines_of(
    events: &BTreeSet<String>,
    truth: &str,
    ours: &str,
) -> (usize, Option<String>) {
    let is_wanted =
        |line: &String| line.split(": ").nth(1).is_some_and(|name| events.contains(name));
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for line in ours.lines().filter_map(without_task).filter(is_wanted) {
        *left.entry(line).or_default() += 1;
    }
    let (mut same, mut other) = (0, None);
    for line in truth.lines().filter_map(without_task).filter(is_wanted) {
        match left.get_mut(&line).filter(|left| **left > 0) {
            Some(left) => {
                *left -= 1;
                same += 1;
            }
            None => drop(other.get_or_insert(line)),
        }
    }
    (same, other)
}

/// Names of the events of modules: a folder of events is called as the module that has them.
pub(super) fn events_of_modules(tree: &Path, addresses: &Addresses) -> Result<BTreeSet<String>> {
    let mut events = BTreeSet::new();
    for module in addresses.modules.keys() {
        for event in std::fs::read_dir(tree.join("events").join(module)).into_iter().flatten() {
            events.insert(event?.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUTH: &str = "     x-7       [000] d.h1.     2.5: a: function=work now=1\n     x-7       [000] d.h1.     2.5: <stack trace>\n => g \
                         <ffffffff81000010>\n => m <ffffffffc0000123>\n     x-7       [000] d.h1.     2.6: b: function=m\n";

    fn addresses() -> Addresses {
        let at = |address: u64, is_of_module| (BTreeSet::from([address]), is_of_module);
        let functions =
            [("work", at(1, false)), ("g", at(2, false)), ("m", at(0xffff_ffff_c000_0100, true))];
        let functions = functions.map(|(name, at)| (name.to_string(), at)).into();
        Addresses { functions, kernel: 0, modules: BTreeMap::new() }
    }

    fn compare(ours: &str) -> (usize, usize, usize, usize) {
        let names = addresses().compare(TRUTH, ours).unwrap();
        (names.right, names.of_modules, names.unnamed, names.wrong)
    }

    #[test]
    fn names_are_right_or_wrong() {
        let ours = TRUTH.replace(" <ffffffff81000010>", "").replace(" <ffffffffc0000123>", "");
        assert_eq!(compare(&ours), (4, 2, 0, 0));
        assert_eq!(compare(&ours.replace("=work", "=play")), (3, 2, 0, 1));
        assert_eq!(compare(&ours.replace("=work", "=")), (3, 2, 0, 1));
        assert_eq!(compare(""), (0, 0, 0, 4));
        assert!(addresses().compare(&ours, &ours).is_err(), "a truth without addresses");
    }

    #[test]
    fn only_the_recorded_address_of_a_function_of_a_module_is_unnamed() {
        let ours = |frame: &str, function: &str| {
            let text = TRUTH
                .replace("m <ffffffffc0000123>", frame)
                .replace("b: function=m", &format!("b: function={function}"));
            compare(&text.replace(" <ffffffff81000010>", ""))
        };
        assert_eq!(ours("0xffffffffc0000123", "0xffffffffc0000100"), (2, 0, 2, 0));
        assert_eq!(ours("0xffffffffc0000100", "0xffffffffc0000123"), (2, 0, 0, 2));
        assert_eq!(ours("m", ""), (3, 1, 0, 1));
        assert_eq!(ours("", "m"), (3, 1, 0, 1));
        let kernel = TRUTH
            .replace("g <ffffffff81000010>", "0xffffffff81000010")
            .replace(" <ffffffffc0000123>", "");
        assert_eq!(compare(&kernel), (3, 2, 0, 1), "a function of the kernel must have its name");
    }

    #[test]
    fn lines_of_modules_are_compared_as_they_are() {
        let events = BTreeSet::from(["b".to_string()]);
        assert_eq!(lines_of(&events, TRUTH, &TRUTH.replace("a:", "c:")), (1, None));
        let (same, other) = lines_of(&events, TRUTH, &TRUTH.replace("b:", "c:"));
        assert_eq!((same, other.as_deref()), (0, Some("7 [000] d.h1.     2.6: b: function=m")));
    }
}
