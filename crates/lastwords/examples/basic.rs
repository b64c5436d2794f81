//! Records a few events and is killed by SIGKILL; the session's folder stays and can be recovered.
//!
//!     cargo run --example basic
//!     lastwords report FOLDER

use std::process::Command;

use lastwords::{ChannelConfig, Session, event, mark};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("child") {
        return child();
    }
    let killed = Command::new(std::env::current_exe()?).arg("child").status()?;
    println!("the child ended: {killed}");
    for session in lastwords_control::list(None)? {
        match session.details {
            Ok(details) => {
                println!("{:?} {} of {}", details.state, session.folder.display(), details.program)
            }
            Err(why) => println!("unreadable {}: {why}", session.folder.display()),
        }
    }
    Ok(())
}

fn child() -> Result<(), Box<dyn std::error::Error>> {
    let _session = Session::builder("basic")
        .channel(ChannelConfig::new("main").sub_buffers(4, 16 << 10))
        .start()?;
    for request in 0..10_000u64 {
        event!(demo, "request", number = request, path = "/index.html", size = 512u32);
    }
    mark!("about to die after {} requests", 10_000u32);
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    Ok(())
}
