//! Runs the program on a pseudo terminal, and reads its screen as a terminal shows it.

use crate::child::Running;
use crate::support::Place;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The output that the terminal has received.
struct Received {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

/// A program on a terminal of its own; killed when dropped.
pub(crate) struct Terminal {
    pub(crate) child: Running,
    master: File,
    slave: File,
    received: Arc<Mutex<Received>>,
}

/// How a program on a terminal ended.
pub(crate) struct Left {
    pub(crate) status: Option<i32>,
    pub(crate) err: String,
    /// The terminal shows its normal screen and its cursor, and lines are edited and echoed as
    /// before.
    pub(crate) is_restored: bool,
}

/// Smallest screen of the parser, which cannot wrap lines in narrower ones. What stands in a part
/// of it stands there in the whole.
const SMALLEST: (u16, u16) = (24, 80);

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    pub(crate) fn start(place: &Place, args: &[&str], rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a pseudo terminal");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let name = ptsname(&master, Vec::new()).expect("ptsname").into_string().expect("UTF-8");
        let slave =
            File::options().read(true).write(true).open(name).expect("the terminal's other end");
        tcsetwinsize(&slave, size(rows, columns)).expect("a size");
        let own = place.command();
        // It becomes the terminal of a session of its own, so that a new size and Ctrl-C reach the
        // program.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]);
        command.arg(own.get_program()).args(args).current_dir(place.path());
        own.get_envs().for_each(|(key, value)| match value {
            Some(value) => _ = command.env(key, value),
            None => _ = command.env_remove(key),
        });
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(Stdio::piped());
        let child = Running::start(&mut command);
        let master = File::from(master);
        let received = Received {
            screen: vt100::Parser::new(rows.max(SMALLEST.0), columns.max(SMALLEST.1), 0),
            bytes: Vec::new(),
        };
        let received = Arc::new(Mutex::new(received));
        let (to, mut from) = (Arc::clone(&received), master.try_clone().expect("a descriptor"));
        // It ends when the last end is closed.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let mut received = to.lock().expect("no panic");
                received.screen.process(&bytes[..count]);
                received.bytes.extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, master, slave, received }
    }

    /// Types keys.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("keys");
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let mut received = self.received.lock().expect("no panic");
        received.screen.screen_mut().set_size(rows.max(SMALLEST.0), columns.max(SMALLEST.1));
        drop(received);
        tcsetwinsize(&self.master, size(rows, columns)).expect("a size");
    }

    /// Returns the contents of the screen.
    pub(crate) fn screen(&self) -> String {
        self.received.lock().expect("no panic").screen.screen().contents()
    }

    /// Number of bytes that the program has written.
    pub(crate) fn written(&self) -> usize {
        self.received.lock().expect("no panic").bytes.len()
    }

    /// Waits until the screen is as it should be, and returns it.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(40), "{what}: not in 40 s\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the program's end.
    pub(crate) fn end(mut self) -> Left {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(40),
                "it does not end in 40 s\n{}",
                self.screen()
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut err = String::new();
        self.child.child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("UTF-8");
        let modes = tcgetattr(&self.slave).expect("the terminal's modes").local_modes;
        let has_modes = modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        // The reader gets what is left before the last open end is closed.
        std::thread::sleep(Duration::from_millis(100));
        let received = self.received.lock().expect("no panic");
        let screen = received.screen.screen();
        let is_restored = has_modes && !screen.alternate_screen() && !screen.hide_cursor();
        drop(received);
        Left { status: status.code(), err, is_restored }
    }
}
