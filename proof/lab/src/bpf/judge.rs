//! Compares what we say of the maps with what the guest's program printed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::compare::Rows;

/// Numbers that every CPU writes into `lw_ring`.
const NUMBERS: u64 = 180;
/// Of eight numbers, the record of this one is discarded.
const DISCARDED: u64 = 3;
/// Counters of `lw_count`, as in `writer.c`.
const LIVE: u64 = 3;
const OVER_LIVE: u64 = 5;
const NO_ROOM: u64 = 6;
/// Bytes of a record in a ring, and of its header.
const RECORD: u64 = 32;
const HEADER: u64 = 8;

/// A record: position, state, length, and its bytes as hexadecimal digits.
type Record = (u64, String, u64, String);

/// The truth, which the guest's program printed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Truth {
    /// Name, id, sizes of key and value, entries.
    maps: Vec<(String, [u64; 4])>,
    /// Name, id, tag, ids of maps.
    programs: Vec<(String, u64, String, Vec<u64>)>,
    /// Positions of the consumer and of the producer.
    rings: BTreeMap<String, [u64; 2]>,
    records: BTreeMap<String, Vec<Record>>,
    consumed: BTreeMap<String, Vec<Record>>,
    /// The position to which the ring `lw_over` is overwritten, if the kernel has such rings.
    overwritten: Option<u64>,
    /// Index, CPU, state, count.
    states: BTreeMap<u64, [u64; 3]>,
    flows: BTreeMap<u64, u64>,
}

impl Truth {
    /// Reads the lines of a console.
    ///
    /// # Errors
    /// A line is not whole, or there are too few.
    pub(super) fn new(console: &str) -> Result<Self> {
        let mut truth = Self::default();
        for line in console.lines().filter_map(|line| line.strip_prefix("BPF ")) {
            truth.line(line).with_context(|| format!("the guest says: {line}"))?;
        }
        ensure!(truth.maps.len() >= 7 && truth.programs.len() >= 5, "too few lines of truth");
        ensure!(truth.records.values().all(|records| records.len() >= 20), "too few records");
        ensure!(truth.flows.len() == 100 && truth.states.len() > 10, "too few entries");
        Ok(truth)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |at: usize| words.get(at).copied().context("a word is missing");
        let number = |at: usize| -> Result<u64> { Ok(word(at)?.parse()?) };
        let name = || Ok::<_, anyhow::Error>(word(1)?.to_owned());
        match word(0)? {
            "map" => {
                self.maps.push((name()?, [number(2)?, number(3)?, number(4)?, number(5)?]));
            }
            "program" => {
                let maps = words.iter().skip(4).map(|id| Ok(id.parse()?)).collect::<Result<_>>()?;
                self.programs.push((name()?, number(2)?, word(3)?.to_owned(), maps));
            }
            "ring" => self.rings.extend([(name()?, [number(2)?, number(3)?])]),
            kind @ ("record" | "consumed") => {
                let bytes = words.get(5).copied().unwrap_or_default().to_owned();
                let record = (number(2)?, word(3)?.to_owned(), number(4)?, bytes);
                let all = if kind == "record" { &mut self.records } else { &mut self.consumed };
                all.entry(name()?).or_default().push(record);
            }
            "overwritten" => self.overwritten = Some(number(2)?),
            "state" => {
                self.states.extend([(number(1)?, [number(2)?, number(3)?, number(4)?])]);
            }
            "flow" => self.flows.extend([(number(1)?, number(2)?)]),
            // The kernel has no overwrite mode.
            _ => ensure!(line == "without overwrite mode", "an unknown line"),
        }
        Ok(())
    }
}

/// Adds the rows of a dump.
pub(super) fn judge(rows: &mut Rows, format: &str, truth: &Truth, said: &Value) {
    let kernel = said;
    let maps: BTreeMap<&str, &Value> = named(&kernel["maps"]);
    let programs: BTreeMap<&str, &Value> = named(&kernel["programs"]);
    let mut same = |what: &str, differ: Vec<String>, count: usize| {
        let detail = match differ.first() {
            None => format!("{count} alike"),
            Some(first) => format!("{} of {count} differ: {first}", differ.len()),
        };
        rows.row(differ.is_empty() && count > 0, &format!("{format} {what}"), &detail);
    };
    let of_map = |(name, facts): &(String, [u64; 4])| {
        let Some(map) = maps.get(name.as_str()) else { return Some(format!("no map {name}")) };
        let ours = ["id", "key_size", "value_size", "max_entries"].map(|key| map[key].as_u64());
        (ours != facts.map(Some)).then(|| format!("{name}: {facts:?} is {ours:?}"))
    };
    same("maps", truth.maps.iter().filter_map(of_map).collect(), truth.maps.len());
    let of_program = |(name, id, tag, used): &(String, u64, String, Vec<u64>)| {
        let Some(program) = programs.get(name.as_str()) else {
            return Some(format!("no program {name}"));
        };
        let is_same = program["id"] == *id
            && program["tag"] == **tag
            && program["kind"] == "raw_tracepoint"
            && sorted(&program["maps"]) == sorted(&Value::from(used.clone()))
            && (name != "lw_idle" || program["links"] == serde_json::json!(["raw_tracepoint"]));
        (!is_same).then(|| format!("{name} {id} {tag} {used:?} is {program}"))
    };
    same("programs", truth.programs.iter().filter_map(of_program).collect(), truth.programs.len());
    for (ring, positions) in &truth.rings {
        let map = maps.get(ring.as_str()).copied().unwrap_or(&Value::Null);
        let (ours, truly) = (records(map), &truth.records[ring]);
        let ours_at = ["consumer", "producer"].map(|key| map["positions"][key].as_u64());
        let mut differ: Vec<String> = (0..ours.len().max(truly.len()))
            .filter(|at| ours.get(*at) != truly.get(*at))
            .map(|at| format!("{:?} is {:?}", truly.get(at), ours.get(at)))
            .collect();
        let overwritten = map["positions"]["overwritten_to"].as_u64();
        let expected = truth.overwritten.filter(|_| ring == "lw_over");
        if ours_at != positions.map(Some) || overwritten != expected {
            differ.push(format!("positions {positions:?} {expected:?} are {}", map["positions"]));
        }
        same(&format!("records of {ring}"), differ, truly.len());
    }
    let numbers =
        missing_numbers(truth, &records(maps.get("lw_ring").copied().unwrap_or(&Value::Null)));
    same("numbers of lw_ring, consumed or not", numbers, NUMBERS as usize * super::CPUS as usize);
    let (states, flows) = entries(truth, &maps);
    same("typed elements of lw_state", states, truth.states.len());
    same("entries of lw_flows", flows, truth.flows.len());
    let live = maps.get("lw_live").copied().unwrap_or(&Value::Null);
    let (differ, count, in_flight) =
        live_numbers(live, maps.get("lw_count").copied().unwrap_or(&Value::Null));
    same(&format!("numbers of lw_live, {in_flight} in flight,"), differ, count);
    if truth.overwritten.is_some() {
        let ring = maps.get("lw_over_live").copied().unwrap_or(&Value::Null);
        let found = overwritten_live(ring, maps.get("lw_count").copied().unwrap_or(&Value::Null));
        same(&format!("numbers of lw_over_live: {}", found.detail), found.differ, found.committed);
    }
    let losses = kernel["evidence"]["losses"] != false;
    let why = losses.then(|| kernel["evidence"].to_string()).into_iter().collect();
    same("account without losses", why, 1);
}

/// Adds the rows of a dump that lacks pages: each map and program is as in the whole dump, entries and
/// records included, or what is missing of it is told.
pub(super) fn judge_cut(
    rows: &mut Rows,
    format: &str,
    (whole, cut): (&Value, &Value),
    losses: &[String],
) -> Result<()> {
    let told = |begin: &str| losses.iter().filter(|loss| loss.starts_with(begin)).count();
    for (key, word) in [("maps", "map"), ("programs", "program")] {
        let there = named(&cut[key]);
        let list_has_hole = told(&format!("the list of BPF {word}s")) > 0;
        for (name, whole) in named(&whole[key]) {
            let id = &whole["id"];
            let is_named = told(&format!("BPF {word} {id} at ")) > 0;
            let (ok, detail) = match there.get(name) {
                Some(own) if *own == whole => (true, "alike".to_owned()),
                Some(own) => differs(whole, own, told(&format!("map {id} ("))),
                None if is_named => (true, "missing, and named".to_owned()),
                None => (list_has_hole, format!("missing; its list has a hole: {list_has_hole}")),
            };
            rows.row(ok, &format!("{format} {word} {name}"), &detail);
        }
        let all = named(&whole[key]);
        let other = there.keys().find(|name| !all.contains_key(*name));
        let detail = other.map_or("none", |name| *name);
        rows.row(other.is_none(), &format!("{format} {word}s that the whole dump lacks"), detail);
    }
    Ok(())
}

/// Compares what there is of a map with the whole map. All entries and records that there are must be
/// some of the whole, and those that are missing must be told.
fn differs(whole: &Value, own: &Value, told: usize) -> (bool, String) {
    let list = |map: &Value, key: &str| map[key].as_array().cloned().unwrap_or_default();
    let (mut wrong, mut missing) = (0, 0);
    for key in ["entries", "records"] {
        let (whole, own) = (list(whole, key), list(own, key));
        wrong += own.iter().filter(|row| !whole.contains(row)).count();
        missing += whole.len().saturating_sub(own.len());
    }
    // Ranges of elements that are zero; one loss tells of a range.
    let zeros = |map: &Value| -> BTreeSet<u64> {
        let ranges = list(map, "zeros");
        let range = |range: &Value| Some(range[0].as_u64()?..=range[1].as_u64()?);
        ranges.iter().filter_map(range).flatten().collect()
    };
    wrong += zeros(own).difference(&zeros(whole)).count();
    missing += usize::from(zeros(own).len() < zeros(whole).len() && missing == 0);
    let others = |map: &Value| {
        let mut map = map.clone();
        ["entries", "records", "zeros"].iter().for_each(|key| map[*key] = Value::Null);
        map
    };
    wrong += usize::from(others(whole) != others(own));
    (wrong == 0 && told >= missing, format!("{wrong} wrong, {missing} missing, {told} losses told"))
}

fn named(list: &Value) -> BTreeMap<&str, &Value> {
    let rows = list.as_array().into_iter().flatten();
    rows.filter_map(|row| Some((row["name"].as_str()?, row))).collect()
}

fn sorted(list: &Value) -> BTreeSet<u64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn records(map: &Value) -> Vec<Record> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_u64().unwrap_or(u64::MAX);
        (number("position"), text(&row["state"]), number("len"), text(&row["bytes"]))
    };
    map["records"].as_array().into_iter().flatten().map(row).collect()
}

/// Returns the numbers of `lw_ring` that are neither consumed nor among our records.
fn missing_numbers(truth: &Truth, ours: &[Record]) -> Vec<String> {
    let none = Vec::new();
    let consumed = truth.consumed.get("lw_ring").unwrap_or(&none);
    let all: BTreeSet<(u64, u64)> = consumed.iter().chain(ours).filter_map(numbered).collect();
    let each = (0..u64::from(super::CPUS)).flat_map(|cpu| (1..=NUMBERS).map(move |n| (cpu, n)));
    let is_there = |(cpu, n): &(u64, u64)| all.contains(&(*cpu, *n)) == (n % 8 != DISCARDED);
    each.filter(|row| !is_there(row)).map(|(cpu, n)| format!("number {n} of CPU {cpu}")).collect()
}

/// Returns CPU and number of a committed record whose third word confirms them.
fn numbered(record: &Record) -> Option<(u64, u64)> {
    let word = |at: usize| {
        let digits = record.3.get(16 * at..16 * at + 16)?;
        Some(u64::from_str_radix(digits, 16).ok()?.swap_bytes())
    };
    let (number, cpu) = (word(0)?, word(1)?);
    (word(2) == Some(number * 65_537)).then_some((cpu, number))
}

/// Returns what differs of typed elements, and of the entries of the hash table.
fn entries(truth: &Truth, maps: &BTreeMap<&str, &Value>) -> (Vec<String>, Vec<String>) {
    let of = |name: &str| {
        let map = maps.get(name).copied().unwrap_or(&Value::Null);
        map["entries"].as_array().cloned().unwrap_or_default()
    };
    let states = of("lw_state").into_iter().filter_map(|entry| {
        let number = |key: &str| entry["value"][key].as_u64();
        Some((entry["key"].as_u64()?, [number("cpu")?, number("state")?, number("count")?]))
    });
    // An element alone between others that is zero has a row of its own.
    let states: BTreeMap<u64, [u64; 3]> = states.filter(|(_, row)| *row != [0; 3]).collect();
    let truly = truth.states.iter();
    let differ = truly.filter(|(key, row)| states.get(key) != Some(row));
    let mut differ: Vec<String> = differ.map(|row| format!("{row:?}")).collect();
    if states.len() != truth.states.len() {
        differ.push(format!("{} elements", states.len()));
    }
    let hex = |value: &Value, digits: usize| {
        let value = u64::from_str_radix(value.as_str()?, 16).ok()?.swap_bytes();
        Some(value >> (64 - 4 * digits))
    };
    let flows = of("lw_flows").into_iter();
    let flows: BTreeMap<u64, u64> = flows
        .filter_map(|entry| Some((hex(&entry["key"], 8)?, hex(&entry["value"], 16)?)))
        .collect();
    let others = flows.iter().filter(|(key, value)| truth.flows.get(key) != Some(value));
    let gone = truth.flows.keys().filter(|key| !flows.contains_key(key));
    let wrong = others.map(|row| format!("{row:?}")).chain(gone.map(|key| format!("no {key}")));
    (differ, wrong.collect())
}

/// Judges the ring that was written until the panic by itself: a CPU's numbers are 1, 2, …, up to
/// its count, but for the last, which may have been in flight. Returns what differs, and the numbers
/// of records that are committed and in flight.
fn live_numbers(live: &Value, counts: &Value) -> (Vec<String>, usize, u64) {
    let all = records(live);
    let in_flight = all.iter().filter(|record| record.1 == "in-flight").count() as u64;
    let committed: Vec<_> = all.iter().filter(|record| record.1 == "committed").collect();
    let (mut differ, mut begun) = (Vec::new(), 0);
    for cpu in 0..u64::from(super::CPUS) {
        let own = committed.iter().filter_map(|record| numbered(record));
        let own: Vec<u64> = own.filter(|row| row.0 == cpu).map(|row| row.1).collect();
        let is_row = own.iter().copied().eq(1..=own.len() as u64);
        let count = counter(counts, LIVE, cpu);
        let left = count.unwrap_or_default().wrapping_sub(own.len() as u64);
        begun += left;
        if !is_row || left > 1 || own.is_empty() {
            differ.push(format!("CPU {cpu}: {} records, count {count:?}", own.len()));
        }
    }
    if in_flight > begun || committed.len() as u64 + in_flight != all.len() as u64 {
        differ.push(format!("{in_flight} in flight of {} records", all.len()));
    }
    (differ, committed.len(), in_flight)
}

/// The result for the ring that was overwritten until the panic.
#[derive(Debug)]
struct Overwritten {
    differ: Vec<String>,
    committed: usize,
    detail: String,
}

/// Judges the ring that was overwritten until the panic by itself. Its records have one size, and
/// nobody consumed them. So its positions tell how many were overwritten, and each number that a CPU
/// gave is of a record that was overwritten, of one that is there, or of one that found no room:
/// that the programs counted. A CPU may have stopped between the number and its record.
fn overwritten_live(ring: &Value, counts: &Value) -> Overwritten {
    let all = records(ring);
    let at = |key: &str| ring["positions"][key].as_u64().unwrap_or(u64::MAX);
    let (consumer, producer, begin) = (at("consumer"), at("producer"), at("overwritten_to"));
    let mut differ = Vec::new();
    if consumer != 0 || begin == 0 || begin > producer || (begin | producer) % RECORD != 0 {
        differ.push(format!("positions {}", ring["positions"]));
    }
    let in_place = (begin..producer).step_by(RECORD as usize);
    if !all.iter().map(|record| record.0).eq(in_place.take(all.len() + 1)) {
        differ.push(format!("{} records are not those from {begin} to {producer}", all.len()));
    }
    let (in_flight, committed): (Vec<&Record>, Vec<&Record>) =
        all.iter().partition(|record| record.1 == "in-flight");
    let mut numbers = BTreeMap::<u64, Vec<u64>>::new();
    for record in &committed {
        let is_whole = record.1 == "committed" && record.2 == RECORD - HEADER;
        match numbered(record).filter(|_| is_whole) {
            None => differ.push(format!("torn: {record:?}")),
            Some((cpu, number)) => numbers.entry(cpu).or_default().push(number),
        }
    }
    let (mut given, mut no_room) = (0, 0);
    for cpu in 0..u64::from(super::CPUS) {
        let [own, failed] = [OVER_LIVE, NO_ROOM].map(|key| counter(counts, key, cpu));
        let (own, failed) = (own.unwrap_or_default(), failed.unwrap_or_default());
        (given, no_room) = (given + own, no_room + failed);
        // The last number alone may be without a committed record.
        let numbers = numbers.remove(&cpu).unwrap_or_default();
        let all = numbers.first().map_or(own + 1..own + 1, |first| *first..own + 1);
        let last = numbers.last().copied().unwrap_or_default();
        let are_rising = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let missing = |to: u64| (to.saturating_sub(all.start)).saturating_sub(numbers.len() as u64);
        if !are_rising || last > own || missing(last + 1) > failed || missing(own + 1) > failed + 1
        {
            let count = numbers.len();
            let why = format!("{count} of {all:?} to {last}, {failed} without room");
            differ.push(format!("CPU {cpu}: {why}"));
        }
    }
    differ.extend(numbers.keys().map(|cpu| format!("a CPU {cpu}")));
    let in_flight = in_flight.len() as u64;
    let begun = given.checked_sub(producer / RECORD + no_room).unwrap_or(u64::MAX);
    if begun.saturating_add(in_flight) > u64::from(super::CPUS) {
        differ.push(format!("{given} numbers, {begun} of no record, {in_flight} in flight"));
    }
    let detail = format!(
        "{given} given, {} overwritten, {} committed, {in_flight} in flight, {no_room} without room, {begun} begun,",
        begin / RECORD,
        committed.len()
    );
    Overwritten { differ, committed: committed.len(), detail }
}

/// Returns the value of a counter of `lw_count` for a CPU.
fn counter(counts: &Value, key: u64, cpu: u64) -> Option<u64> {
    let mut entries = counts["entries"].as_array()?.iter();
    let entry = entries.find(|entry| entry["key"] == key && entry["cpu"] == cpu)?;
    Some(u64::from_str_radix(entry["value"].as_str()?, 16).ok()?.swap_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_differs_is_found() {
        let word = |n: u64| format!("{:016x}", n.swap_bytes());
        let record = (8, "committed".into(), 24, [word(5), word(2), word(5 * 65_537)].concat());
        assert_eq!(numbered(&record), Some((2, 5)));
        let torn = (8, "committed".into(), 24, [word(5), word(2), word(6 * 65_537)].concat());
        assert_eq!(numbered(&torn), None);
        let mut truth = Truth::default();
        for line in ["map lw_ring 4 0 0 16384", "record lw_ring 32 committed 2 00ff", "flow 31 7"] {
            truth.line(line).unwrap();
        }
        assert_eq!(truth.records["lw_ring"], [(32, "committed".into(), 2, "00ff".into())]);
        assert!(truth.line("ring lw_ring 1").is_err() && truth.line("else").is_err());
        assert_eq!(missing_numbers(&truth, &[]).len(), 4 * (180 - 23));
        assert!(Truth::new("BPF flow 1 2\n").is_err());
    }

    #[test]
    fn what_a_cut_dump_lacks_is_told() {
        let map = |id: u64, name: &str, entries: &[u64]| serde_json::json!({ "id": id, "name": name, "entries": entries });
        let all = serde_json::json!({
            "maps": [map(1, "a", &[1, 2, 3]), map(2, "b", &[])], "programs": [] });
        let failed = |maps: &[Value], losses: &[&str]| {
            let cut = serde_json::json!({ "maps": maps, "programs": [] });
            let losses: Vec<String> = losses.iter().map(|loss| (*loss).to_owned()).collect();
            let mut rows = Rows::new("test".into());
            judge_cut(&mut rows, "d31", (&all, &cut), &losses).unwrap();
            rows.failed
        };
        let zeros = |last: u64| serde_json::json!({ "id": 3, "zeros": [[4, last]] });
        let are_right =
            [(7, 1), (7, 0), (10, 1)].map(|(last, told)| differs(&zeros(9), &zeros(last), told).0);
        assert_eq!(are_right, [true, false, false]);
        let (part, other) = (map(1, "a", &[1, 3]), map(2, "b", &[]));
        let entry = "map 1 (hash a), the entry at 0x10: address 0x10 is excluded";
        assert_eq!(failed(&[part.clone(), other.clone()], &[entry]), 0);
        assert_eq!(failed(&[part.clone(), other], &[]), 1);
        assert_eq!(failed(std::slice::from_ref(&part), &[entry, "BPF map 2 at 0x20: id"]), 0);
        assert_eq!(failed(&[part], &[entry]), 1);
        assert_eq!(failed(&[map(1, "a", &[1, 4])], &[entry, "the list of BPF maps"]), 1);
    }

    fn hex(word: u64) -> String {
        format!("{:016x}", word.swap_bytes())
    }

    /// A ring of four records, of which CPU 0 wrote the odd numbers 1, 3, 5: it found no room for
    /// the even ones. Two of seven records are overwritten; CPU 1 wrote the others.
    fn overwritten() -> (Value, Value) {
        let row = |(at, cpu, number): (u64, u64, u64)| {
            let bytes = [hex(number), hex(cpu), hex(number * 65_537)].concat();
            serde_json::json!({ "position": at * 32, "state": "committed", "len": 24, "bytes": bytes })
        };
        let rows: Vec<Value> =
            [(2, 0, 3), (3, 1, 2), (4, 0, 5), (5, 1, 3), (6, 1, 4)].map(row).into();
        let positions =
            serde_json::json!({ "consumer": 0, "producer": 7 * 32, "overwritten_to": 2 * 32 });
        let ring = serde_json::json!({ "positions": positions, "records": rows });
        let counter = |cpu: u64, key: u64, value: u64| serde_json::json!({ "key": key, "cpu": cpu, "value": hex(value) });
        let values = [(0, OVER_LIVE, 5), (0, NO_ROOM, 2), (1, OVER_LIVE, 5), (1, NO_ROOM, 0)];
        let rest = [2, 3].into_iter().flat_map(|cpu| [(cpu, OVER_LIVE, 0), (cpu, NO_ROOM, 0)]);
        let entries: Vec<Value> = values
            .into_iter()
            .chain(rest)
            .map(|(cpu, key, value)| counter(cpu, key, value))
            .collect();
        (ring, serde_json::json!({ "entries": entries }))
    }

    #[test]
    fn each_number_of_an_overwritten_ring_is_accounted_for() {
        let (ring, counts) = overwritten();
        let found = overwritten_live(&ring, &counts);
        assert_eq!(found.differ, [""; 0]);
        let detail = "10 given, 2 overwritten, 5 committed, 0 in flight, 2 without room, 1 begun,";
        assert_eq!(found.detail, detail);
        let damage: [fn(&mut Value, &mut Value); 7] = [
            |ring, _| _ = ring["records"].as_array_mut().unwrap().remove(1),
            |ring, _| _ = ring["records"].as_array_mut().unwrap().pop(),
            |ring, _| ring["records"][1]["bytes"] = [hex(2), hex(1), hex(7)].concat().into(),
            |ring, _| ring["records"][0]["state"] = "discarded".into(),
            |ring, _| ring["positions"]["overwritten_to"] = 0.into(),
            // A number that is of no record, nor counted.
            |_, counts| counts["entries"][1]["value"] = hex(0).into(),
            |_, counts| counts["entries"][0]["value"] = hex(4).into(),
        ];
        for (number, damage) in damage.into_iter().enumerate() {
            let (mut ring, mut counts) = overwritten();
            damage(&mut ring, &mut counts);
            let found = overwritten_live(&ring, &counts);
            assert!(!found.differ.is_empty(), "{number}: {}", found.detail);
        }
    }
}
