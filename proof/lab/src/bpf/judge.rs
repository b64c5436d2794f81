//! Compares what we say of the maps with what the guest's program printed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::compare::Rows;

/// Numbers that every CPU writes into `lw_ring`.
const NUMBERS: u64 = 180;
/// Of eight numbers, the record of this one is discarded.
const DISCARDED: u64 = 3;

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
    let kernel = &said["kernels"][0];
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
    let losses = kernel["evidence"]["losses"] != false;
    let why = losses.then(|| kernel["evidence"].to_string()).into_iter().collect();
    same("account without losses", why, 1);
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
        let entry = counts["entries"].as_array().into_iter().flatten();
        // `LIVE` of writer.c.
        let mut entry = entry.filter(|entry| entry["key"] == 3 && entry["cpu"] == cpu);
        let count = entry
            .next()
            .and_then(|entry| entry["value"].as_str())
            .map(|digits| u64::from_str_radix(digits, 16).unwrap_or_default().swap_bytes());
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
}
