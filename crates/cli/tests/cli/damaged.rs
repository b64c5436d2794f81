//! What is damaged, cannot be read or is not searched in a folder or a trace of CTF is told, and counts.

use crate::support::{Place, ran};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Writes a trace of CTF: a clock that begins so many seconds from the epoch, and streams of one packet with two events, each packet with
/// a count of discarded events.
fn ctf(folder: &Path, seconds: i64, discarded: &[u64]) {
    let integer = |size: u32, map: &str| format!("integer {{ size = {size}; align = 8; byte_order = le; {map} }}");
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
    for (path, mode) in [(place.path(), 0o755), (&folder, 0o755), (&chan, 0)] {
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
        assert!(ran.status == status && ran.out.lines().count() == 2, "{ran:?}");
        assert!(ran.err.contains("error: ctf/chan_1: Permission denied"), "{}", ran.err);
    }
    // Nor is anything said of a description that LTTng's streams lack.
    std::fs::set_permissions(place.at("ctf/metadata"), std::fs::Permissions::from_mode(0)).unwrap();
    let ran = report(&["ctf"]);
    assert!(ran.status == 1 && ran.err.contains("ctf/metadata: Permission") && !ran.err.contains("--metadata"), "{ran:?}");
}
