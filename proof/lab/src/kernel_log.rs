//! The kernel's log in a dump, beside what `/dev/kmsg` had: levels, times, texts, and the devices
//! that records are of.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::compare::{Ours, Rows};
use crate::dump::Dump;

/// A record: its priority (level and facility), microseconds, subsystem, device, text.
type Record = (u64, u64, String, String, String);

/// Compares the records that there were when the truth was taken.
pub(super) fn compare(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, truth: &Path) -> Result<()> {
    let what = format!("{} kernel's log", dump.format);
    let kmsg = std::fs::read(truth.join("system/kmsg"))?;
    let truth = kmsg_records(&kmsg)?;
    let of_devices = truth.iter().filter(|record| !record.3.is_empty()).count();
    ensure!(of_devices > 0, "no record of a device is in /dev/kmsg");
    let lines = match ours.run("convert", dump, &["--to", "json", "--with-log", "-o", "-"]) {
        Ok(lines) => lines,
        Err(error) => {
            rows.row(false, &what, &format!("{error:#}"));
            return Ok(());
        }
    };
    let events = String::from_utf8(lines)?;
    let found: Vec<Record> = events
        .lines()
        .filter(|line| line.contains("\"kernel:log\""))
        .map(|line| json_record(&serde_json::from_str(line)?))
        .collect::<Result<_>>()?;
    let wrong = truth.iter().enumerate().find(|(at, record)| found.get(*at) != Some(*record));
    let detail = match wrong {
        None => format!("{} records, {of_devices} of devices", truth.len()),
        Some((at, record)) => format!("record {at}: {:?}, the truth has {record:?}", found.get(at)),
    };
    rows.row(wrong.is_none(), &what, &detail);
    Ok(())
}

/// Reads records as `/dev/kmsg` has them: `6,339,5140900,-;text`, and lines with what is known of the
/// device.
fn kmsg_records(kmsg: &[u8]) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for line in String::from_utf8_lossy(kmsg).lines() {
        if let Some(property) = line.strip_prefix(' ') {
            let record = records.last_mut().with_context(|| line.to_owned())?;
            match property.split_once('=').with_context(|| line.to_owned())? {
                ("SUBSYSTEM", value) => record.2 = value.to_owned(),
                ("DEVICE", value) => record.3 = value.to_owned(),
                (other, _) => anyhow::bail!("/dev/kmsg: {other}"),
            }
            continue;
        }
        let (head, text) = line.split_once(';').with_context(|| line.to_owned())?;
        let numbers: Vec<&str> = head.split(',').collect();
        let [priority, _, time, ..] = numbers[..] else { anyhow::bail!("/dev/kmsg: {line:?}") };
        let (priority, time) = (priority.parse()?, time.parse()?);
        records.push((priority, time, String::new(), String::new(), unescaped(text)?));
    }
    Ok(records)
}

/// Undoes `\xNN`.
fn unescaped(text: &str) -> Result<String> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = part.split_at_checked(2).with_context(|| text.to_owned())?;
        bytes.push(u8::from_str_radix(byte, 16)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn json_record(event: &Value) -> Result<Record> {
    let fields = &event["fields"];
    let number = |value: &Value, name| value.as_u64().with_context(|| format!("{name}: {event}"));
    let text = |name| {
        let text = fields[name].as_str().with_context(|| format!("{name}: {event}"));
        text.map(str::to_owned)
    };
    let (facility, level) =
        (number(&fields["facility"], "facility")?, number(&fields["level"], "level")?);
    let time = number(&event["ticks"], "ticks")? / 1000;
    Ok((facility * 8 + level, time, text("subsystem")?, text("device")?, text("text")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_kmsg_have_devices_and_escaped_bytes() {
        let kmsg = b"6,2,1500,-;a\\x0ab \\x5cx\n SUBSYSTEM=pci\n DEVICE=+pci:0\n12,3,2,c;c;d\n";
        let none = String::new;
        let first = (6, 1500, "pci".into(), "+pci:0".into(), "a\nb \\x".into());
        assert_eq!(kmsg_records(kmsg).unwrap(), [first, (12, 2, none(), none(), "c;d".into())]);
    }
}
