//! Sessions and a stream that the program of version 0.1 (memory format 1.2) wrote. This version
//! reads them with the same result.
//!
//! `tests/stored-0.1` has two session folders whose processes were killed (`sessions.tar.zst`), the
//! bytes that `record -o tcp:...` sent to a receiver (`stream.zst`), and the text that version 0.1
//! printed of each. These files are never written anew.

use crate::stream::{Receiver, path};
use crate::support::{Place, tool};
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;

fn stored(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/stored-0.1", name].iter().collect()
}

fn same_text(place: &Place, folder: &str, text: &str) {
    let ran = place.run(&["report", "--utc", "--style", "fields", folder]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let text = std::fs::read_to_string(stored(text)).unwrap();
    let different = text.lines().zip(ran.out.lines()).find(|(was, is)| was != is);
    assert_eq!(different, None);
    assert_eq!(text.lines().count(), ran.out.lines().count());
    assert!(ran.err.contains("nothing lost"), "{}", ran.err);
}

#[test]
fn sessions_of_an_earlier_version() {
    let place = Place::new();
    let archive = stored("sessions.tar.zst");
    tool(
        "tar",
        &["-C", place.path().to_str().unwrap(), "--zstd", "-xf", archive.to_str().unwrap()],
    );
    same_text(&place, "./shop", "shop.txt");
    same_text(&place, "./server", "server.txt");
}

#[test]
fn stream_of_an_earlier_version() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    let bytes = tool_output("zstd", &["-dc", stored("stream.zst").to_str().unwrap()]);
    let address = receiver.address.strip_prefix("tcp:").expect("an address of TCP").to_owned();
    let mut sender = TcpStream::connect(address).unwrap();
    sender.write_all(&bytes).unwrap();
    sender.shutdown(Shutdown::Write).unwrap();
    let received = receiver.next("saved-session");
    same_text(&place, path(&place, &received).to_str().unwrap(), "stream.txt");
}

fn tool_output(name: &str, args: &[&str]) -> Vec<u8> {
    let output =
        std::process::Command::new(name).args(args).output().expect("the tool is installed");
    assert!(output.status.success());
    output.stdout
}
