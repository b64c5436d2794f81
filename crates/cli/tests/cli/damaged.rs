//! Parts of a folder or of a CTF trace that are damaged, unreadable or not searched are reported,
//! and count as losses.

use crate::support::{Place, ran, small};
use lastwords_testkit::layout::session as se;
use lastwords_testkit::samples;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Writes a trace of CTF: a clock that begins so many seconds from the epoch, and streams of one
/// packet with two events, each packet with a count of discarded events.
fn ctf(folder: &Path, seconds: i64, discarded: &[u64]) {
    let integer = |size: u32, map: &str| {
        format!("integer {{ size = {size}; align = 8; byte_order = le; {map} }}")
    };
    let (int, long, time) = (integer(32, ""), integer(64, ""), integer(64, "map = clock.c.value;"));
    let metadata = format!(
        "/* CTF 1.8 */\ntrace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ {int} magic; }}; }};\n\
         clock {{ name = c; freq = 1000000000; offset_s = {seconds}; absolute = true; }};\n\
         stream {{ packet.context := struct {{ {long} content_size; {long} packet_size; {long} events_discarded; }};\n\
         event.header := struct {{ {time} timestamp; }}; }};\nevent {{ name = e; fields := struct {{ {long} v; }}; }};\n"
    );
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("metadata"), metadata).unwrap();
    for (stream, count) in discarded.iter().enumerate() {
        let bits = 8 * (4 + 3 * 8 + 2 * 16);
        let mut bytes = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
        let words = [bits, bits, *count, 1_000_000_000, 7, 2_000_000_000, 8];
        words.iter().for_each(|word: &u64| bytes.extend(word.to_le_bytes()));
        std::fs::write(folder.join(format!("chan_{stream}")), bytes).unwrap();
    }
}

#[test]
fn a_stream_that_cannot_be_read_costs_only_itself() {
    let place = Place::new();
    let (folder, chan) = (place.at("ctf"), place.at("ctf/chan_1"));
    ctf(&folder, 0, &[0, 0]);
    for (path, mode) in [(place.path(), 0o755), (&folder, 0o755), (&chan, 0o000)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let report = |args: &[&str]| {
        let mut command = place.command();
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        ran(command.arg("report").args(args).output().unwrap())
    };
    for (args, status) in [(&["ctf"][..], 1), (&["ctf", "--strict"], 3)] {
        let ran = report(args);
        ran.has_status(status).prints_lines(2);
        ran.says("error: ctf/chan_1: Permission denied");
    }
    // Nor is anything said of a description that LTTng's streams lack.
    std::fs::set_permissions(place.at("ctf/metadata"), std::fs::Permissions::from_mode(0o000))
        .unwrap();
    report(&["ctf"]).has_status(1).says("ctf/metadata: Permission").does_not_say("--metadata");
}

#[test]
fn a_stream_file_that_is_cut_off_is_a_loss_of_its_trace() {
    let place = Place::new();
    ctf(&place.at("ctf"), 0, &[0, 0]);
    let path = place.at("ctf/chan_1");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&bytes[..], &bytes[..40]].concat()).unwrap();
    let ran = place.run(&["report", "ctf", "--strict"]);
    ran.has_status(3).prints_lines(4).does_not_say("nothing lost");
    ran.says("ctf/chan_1: packet at offset");
    for (verb, format) in [("convert", "json"), ("recover", "ctf"), ("convert", "perfetto")] {
        let output = format!("{verb}-{format}");
        place
            .run(&[verb, "ctf", "--to", format, "-o", &output, "--json", "--strict"])
            .has_status(3)
            .prints("\"losses\": true");
    }
    let json = std::fs::read_to_string(place.at("convert-json")).unwrap();
    assert!(json.lines().next().unwrap().contains("\"losses\":true"), "{json}");
}

#[test]
fn streams_of_ctf_without_good_metadata_are_a_loss() {
    let place = Place::new();
    small(&place, "all/a", 0);
    let (folder, metadata) = (place.at("all/ctf"), place.at("all/ctf/metadata"));
    let good = place.ok(&["report", "all"]);
    ctf(&folder, 0, &[0]);
    let text = std::fs::read_to_string(&metadata).unwrap();
    let torn = text.replace("/* CTF", "/~ CTF");
    let other = torn.replace("minor = 8", "minor = 9");
    for bad in [Some(vec![0xa5; 300]), Some(Vec::new()), None, Some(other.clone().into_bytes())] {
        match &bad {
            Some(bytes) => std::fs::write(&metadata, bytes).unwrap(),
            None => std::fs::remove_file(&metadata).unwrap(),
        }
        for (args, status) in [(&["all"][..], 0), (&["all", "--strict"], 3)] {
            let ran = place.run(&[&["report"], args].concat());
            ran.has_status(status).says("error: all/ctf/metadata: ");
            assert_eq!(ran.out, good, "{bad:?}");
        }
        let ran = place.run(&["report", "all/ctf"]);
        ran.has_status(1).says("error: all/ctf/metadata: ").does_not_say("no session is in");
    }
    // What nothing else needs costs no event.
    std::fs::write(&metadata, torn).unwrap();
    let ran = place.run(&["report", "all/ctf", "--strict"]);
    ran.has_status(3).prints_lines(2).says("metadata: line 1: ");
    std::fs::write(&metadata, other).unwrap();
    // Other traces in the folder and below it are read all the same.
    ctf(&place.at("all/ctf/below"), 0, &[0]);
    for bad in [None, Some("junk")] {
        let _ = bad.map(|text| std::fs::write(&metadata, text).unwrap());
        let ran = place.run(&["report", "all/ctf", "--strict"]);
        ran.has_status(3).prints_lines(2).says_times("error: all/ctf/metadata: ", 1);
    }
}

#[test]
fn folders_too_deep_to_be_searched_are_a_loss() {
    let place = Place::new();
    ctf(&place.at("deep/ctf"), 0, &[0]);
    let far = format!("deep/{}", "x/".repeat(40));
    ctf(&place.at(&far), 0, &[0]);
    for (args, status) in [(&["deep"][..], 0), (&["deep", "--strict"], 3)] {
        let ran = place.run(&[&["report"], args].concat());
        ran.has_status(status).prints_lines(2);
        ran.says("too deep in other folders to be searched");
    }
    std::fs::remove_dir_all(place.at("deep/ctf")).unwrap();
    place.run(&["report", "deep"]).has_status(1).says("too deep");
}

#[test]
fn links_and_pipes_in_a_folder_are_told_once() {
    let place = Place::new();
    ctf(&place.at("all/ctf"), 0, &[0]);
    ctf(&place.at("other"), 0, &[0]);
    std::fs::create_dir(place.at("all/below")).unwrap();
    symlink("../other", place.at("all/link")).unwrap();
    symlink("../../other", place.at("all/below/link")).unwrap();
    let ran = place.run(&["report", "all", "--strict"]);
    ran.has_status(0).prints_lines(2).says("all/link and 1 more").says_times("note: ", 1);
}

#[test]
fn what_was_discarded_before_the_first_packet_is_a_loss() {
    let place = Place::new();
    ctf(&place.at("ctf"), 0, &[9]);
    let ran = place.run(&["report", "ctf", "--strict"]);
    ran.has_status(3).prints_lines(2).says("discarded (9 events)");
    let told = place.json(&["inspect", "ctf", "--json"]);
    assert_eq!(told.to_string().matches("\"discarded_events\":9").count(), 1, "{told}");
    // A copy tells of them as well, and once.
    place.ok(&["recover", "ctf", "-o", "copy"]);
    place.run(&["report", "copy", "--strict"]).has_status(3).says("discarded (9 events)");
}

#[test]
fn times_before_the_epoch_are_moved_for_perfetto() {
    let place = Place::new();
    ctf(&place.at("ctf"), -1000, &[0]);
    let ran = place.run(&["convert", "ctf", "-o", "x.pftrace"]);
    ran.has_status(0).says("1000000000000 ns before the epoch");
    let bytes = std::fs::read(place.at("x.pftrace")).unwrap();
    for mut time in [1_000_000_000u64, 2_000_000_000] {
        // `TracePacket.timestamp`, and a varint.
        let mut field = vec![8 << 3];
        while time > 0x7f {
            field.push(time as u8 | 0x80);
            time >>= 7;
        }
        field.push(time as u8);
        assert!(bytes.windows(field.len()).any(|window| window == field), "{field:x?}");
    }
}

/// A sub-buffer of which nothing is left has no clock. The time for which a ring holds events is
/// computed without it.
#[test]
fn the_oldest_sub_buffer_without_events_does_not_change_how_long_a_ring_holds() {
    const SIZE: u64 = 4096;
    let place = Place::new();
    let session = samples::one_stream(se::LOCKED, SIZE, 8, 20);
    let mut image = session.image();
    image.write_folder(&place.at("whole")).unwrap();
    let bytes = &mut image
        .regions
        .iter_mut()
        .find(|region| region.name.starts_with("stream"))
        .unwrap()
        .bytes;
    // docs/ABI.md, section 7. Of 20 closed sub-buffers and an open one, number 13 is the oldest in
    // 8 places.
    let data = u64::from_le_bytes(bytes[128 + 48..][..8].try_into().unwrap());
    let at = (data + 13 % 8 * SIZE) as usize;
    bytes[at..at + SIZE as usize].fill(0);
    image.write_folder(&place.at("zeroed")).unwrap();
    let rate = |folder: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&place.run(&["inspect", "--json", folder]).out).unwrap();
        let text = json.to_string();
        let (_, rest) = text.split_once("\"events_per_second\":").expect("a rate");
        rest.split([',', '}']).next().unwrap().parse::<f64>().unwrap()
    };
    let (whole, zeroed) = (rate("./whole"), rate("./zeroed"));
    assert!((0.8..1.25).contains(&(zeroed / whole)), "{whole} and {zeroed} events a second");
}
