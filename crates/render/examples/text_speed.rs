//! Measures the writers on a synthetic trace of four streams:
//! `cargo run --release -p lastwords-render --example text_speed`.

use lastwords_bytes::ByteOrder;
use lastwords_ctf::read::unwatched;
use lastwords_ctf::{Version, write as ctf};
use lastwords_render::select::Selection;
use lastwords_render::text::{Style, Zone};
use lastwords_render::{Error, Totals, json, text};
use lastwords_trace::clock::Clock;
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::schema::{Channel, EnvValue, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::{PacketInfo, PacketReader, Source, Stream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const STREAMS: usize = 4;
const PACKETS: u64 = 64;
const PACKET_LEN: usize = 256 << 10;

struct Synthetic {
    schema: Schema,
    streams: Vec<Stream>,
    packets: Vec<Vec<(PacketInfo, Vec<u8>)>>,
    evidence: Evidence,
    events: u64,
}

impl Source for Synthetic {
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn streams(&self) -> &[Stream] {
        &self.streams
    }
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Reader(self.packets[stream].iter()))
    }
    fn evidence(&self) -> &Evidence {
        &self.evidence
    }
}

struct Reader<'a>(std::slice::Iter<'a, (PacketInfo, Vec<u8>)>);

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (info, content) = self.0.next()?;
        bytes.clear();
        bytes.extend_from_slice(content);
        Some(info.clone())
    }
}

fn synthetic(frequency: u64) -> Synthetic {
    let integer = |name: &str, size, signed| Field {
        name: name.to_owned(),
        class: FieldClass::Integer { size, signed, base: 10 },
    };
    let text = Field { name: "text".to_owned(), class: FieldClass::String };
    let class = |id, name: &str, fields| EventClass {
        id,
        name: name.to_owned(),
        level: 3,
        format: String::new(),
        location: String::new(),
        fields,
    };
    let channel = Channel {
        id: 0,
        name: "default".to_owned(),
        contexts: vec![integer("vtid", 4, true)],
        events: vec![
            class(0, "demo:numbers", vec![integer("a", 4, false), integer("b", 8, false)]),
            class(1, "demo:text", vec![integer("a", 4, false), integer("b", 8, false), text]),
        ],
    };
    let clock = Clock {
        name: "tsc".to_owned(),
        description: String::new(),
        frequency,
        offset_seconds: 1_795_000_000,
        offset_ticks: 12_345,
        absolute: true,
    };
    let env = [("hostname".to_owned(), EnvValue::Text("box".to_owned()))].into();
    let schema = Schema {
        uuid: [7; 16],
        name: "speed".to_owned(),
        byte_order: ByteOrder::Little,
        env,
        clock,
        channels: vec![channel],
    };
    let streams = (0..STREAMS)
        .map(|i| Stream { channel: 0, instance: i as u64, cpu: Some(i as u32) })
        .collect();
    let mut events = 0;
    let packets = (0..STREAMS).map(|i| packets(i as u64, &mut events)).collect();
    Synthetic { schema, streams, packets, evidence: Evidence::default(), events }
}

fn packets(stream: u64, events: &mut u64) -> Vec<(PacketInfo, Vec<u8>)> {
    let mut clock = 1_000_000_000_000 + stream * 37;
    let mut out = Vec::new();
    for sequence in 0..PACKETS {
        let begin = clock;
        let mut bytes = vec![0u8; 84];
        while bytes.len() < PACKET_LEN - 64 {
            clock += 150 + (clock * 7 + stream) % 100;
            let id = u32::from((*events).is_multiple_of(4));
            bytes.extend(((clock as u32) << 5 | id).to_le_bytes());
            bytes.extend(1234u32.to_le_bytes());
            bytes.extend((*events as u32).to_le_bytes());
            bytes.extend((*events * 1000).to_le_bytes());
            if id == 1 {
                bytes.extend(b"sixteen bytes ..\0");
            }
            *events += 1;
        }
        let bits = 8 * bytes.len() as u64;
        let mut header = 0xC1FC_1FC1u32.to_le_bytes().to_vec();
        header.extend([7; 16]);
        header.extend(0u32.to_le_bytes());
        [stream, begin, clock, bits, bits, sequence, 0]
            .iter()
            .for_each(|word| header.extend(word.to_le_bytes()));
        header.extend((stream as u32).to_le_bytes());
        bytes[..84].copy_from_slice(&header);
        let info = PacketInfo {
            sequence,
            begin,
            end: clock,
            discarded: 0,
            verdict: Verdict::Committed,
            events_at: 84,
            packet_len: PACKET_LEN as u64,
        };
        out.push((info, bytes));
    }
    out
}

fn main() -> Result<(), Error> {
    for frequency in [1_000_000_000, 2_394_374_000] {
        let source = Arc::new(synthetic(frequency));
        let bytes: usize = source.packets.iter().flatten().map(|(_, bytes)| bytes.len()).sum();
        println!("{} events, {} MB, clock {frequency} Hz", source.events, bytes >> 20);
        measure(&source)?;
    }
    Ok(())
}

fn measure(source: &Arc<Synthetic>) -> Result<(), Error> {
    let all = Selection::default();
    for style in [Style::Babeltrace, Style::Ftrace, Style::Fields, Style::Raw] {
        let traces = [lastwords_ctf::session::trace(source, Path::new("memory"), Version::V2)?];
        let begin = Instant::now();
        let totals = text::write(
            &traces,
            style,
            &all,
            &Zone::utc(),
            &mut std::io::sink(),
            &unwatched,
            &mut |_| {},
        )?;
        show(&format!("text, {style:?}"), begin, totals);
    }
    let traces = [lastwords_ctf::session::trace(source, Path::new("memory"), Version::V2)?];
    let begin = Instant::now();
    let totals = json::write(&traces, &all, &mut std::io::sink(), &unwatched, &mut |_| {})?;
    show("JSON lines", begin, totals);
    for count_events in [false, true] {
        let folder =
            std::path::PathBuf::from(format!("/dev/shm/lastwords-speed-{}", std::process::id()));
        let begin = Instant::now();
        let options = ctf::Options { version: Version::V1_8, count_events };
        let totals = ctf::write(&**source, &folder, options, &unwatched)?;
        show(&format!("CTF, counted: {count_events}"), begin, totals);
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(())
}

fn show(what: &str, begin: Instant, totals: Totals) {
    let seconds = begin.elapsed().as_secs_f64();
    let rate = |n: u64| n as f64 / seconds / 1e6;
    println!("  {what:<24} {:8.1} M events/s {:8.0} MB/s", rate(totals.events), rate(totals.bytes));
}
