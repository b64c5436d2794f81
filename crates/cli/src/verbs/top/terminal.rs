//! Shows readings on a terminal until the user quits. The terminal is restored at the end, after a
//! signal, and in a panic.

use super::reading::{Reading, Sort, State};
use super::screen::{View, draw};
use super::watch::Watch;
use super::{Args, follow, wait_for_step};
use crate::exit::Outcome;
use crate::stop::Stop;
use crate::{paint, say};
use lastwords_control::Handle;
use lastwords_open::EndedReport;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::Duration;

/// Time between two looks at the keyboard when nothing is read any more.
const IDLE: Duration = Duration::from_millis(200);

/// The terminal, what is shown on it, and what the user wants.
struct Screen<'s> {
    /// It is not dropped: its own drop prints an error on a terminal that is gone, which panics.
    terminal: ManuallyDrop<DefaultTerminal>,
    view: View,
    /// The reading on the screen.
    shown: Option<Reading>,
    stop: &'s Stop,
    quit: bool,
    /// The terminal failed.
    failed: Option<io::Error>,
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Shows the session until the user quits.
pub(super) fn run(
    args: &Args,
    handle: &Handle,
    folder: &Path,
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let view = View { sort: args.sort, coloured: paint::is_coloured(), ..View::default() };
    // This also makes a panic restore the terminal before it prints its message.
    let terminal = ManuallyDrop::new(ratatui::try_init()?);
    let screen =
        RefCell::new(Screen { terminal, view, shown: None, stop, quit: false, failed: None });
    screen.borrow_mut().draw();
    let watch = RefCell::new(Watch::new(handle, args.interval));
    let mut has_begun = false;
    // The step that no reading has yet.
    let is_fresh = RefCell::new(false);
    let taken = |watch: &mut Watch<'_>| {
        *is_fresh.borrow_mut() = true;
        let is_first = !std::mem::replace(&mut has_begun, true);
        if is_first || watch.is_due() {
            *is_fresh.borrow_mut() = false;
            screen.borrow_mut().show(watch.reading(), watch.news());
        }
        !screen.borrow().quit
    };
    let followed = follow(
        folder,
        &watch,
        || wait_for_step(&watch, |time| screen.borrow_mut().wait(time)),
        taken,
    );
    let (mut screen, mut watch) = (screen.into_inner(), watch.into_inner());
    if followed.is_ok() && screen.goes_on() {
        let (state, news) = (watch.state(), watch.news());
        match screen.shown.take().filter(|_| !is_fresh.into_inner()) {
            Some(last) => {
                screen.show(Reading { state, ended: watch.ended().map(EndedReport), ..last }, news)
            }
            None => screen.show(watch.reading(), news),
        }
        while screen.wait(IDLE) {}
    }
    let failed = screen.failed.take();
    let shown = screen.shown.take();
    drop(screen);
    watch.news().iter().for_each(say::note);
    followed?;
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    let is_removed = shown.is_some_and(|reading| reading.state == State::Destroyed);
    if is_removed {
        say::note(format_args!("{}: the session was removed while it was shown", folder.display()));
    }
    Ok(Outcome::Done)
}

impl Screen<'_> {
    fn goes_on(&self) -> bool {
        !self.quit && !self.stop.came() && self.failed.is_none()
    }

    /// Shows a reading, unless the screen is held. A session that has ended is always shown.
    fn show(&mut self, reading: Reading, news: Vec<String>) {
        if let Some(last) = news.into_iter().next_back() {
            self.view.remark = Some(last);
        }
        if reading.state != State::Live {
            let what = if reading.state == State::Destroyed {
                "the session was removed"
            } else {
                "the session has ended"
            };
            self.view.remark = Some(format!("{what}; q quits"));
            self.view.paused = false;
        }
        if !self.view.paused || self.shown.is_none() {
            self.shown = Some(reading);
        }
        self.draw();
    }

    fn draw(&mut self) {
        let Self { terminal, view, shown, failed, .. } = self;
        if let Err(error) = terminal.draw(|frame| draw(frame, shown.as_ref(), view)) {
            *failed = Some(error);
        }
    }

    /// Waits for keys. Returns false if the user quits, or if a signal came.
    fn wait(&mut self, time: Duration) -> bool {
        match self.take_keys(time) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => self.failed = Some(error),
            Ok(true) => self.draw(),
            _ => {}
        }
        self.goes_on()
    }

    /// Takes the keys that come within a time. Returns true if the screen must be drawn again.
    fn take_keys(&mut self, time: Duration) -> io::Result<bool> {
        let mut is_changed = false;
        wait_for_input(time)?;
        while event::poll(Duration::ZERO)? {
            is_changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                self.quit |= press(&mut self.view, key);
            }
        }
        Ok(is_changed)
    }
}

/// Waits until there is input, a signal comes, such as that of another size of the terminal, or the
/// time is over.
///
/// # Errors
/// The terminal is gone. Crossterm would read its end again and again.
fn wait_for_input(time: Duration) -> io::Result<()> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut input, Timespec::try_from(time).ok().as_ref()) {
        Err(Errno::INTR) => return Ok(()),
        polled => polled?,
    };
    match input[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone")),
        false => Ok(()),
    }
}

/// Does what a key means. Returns true if the user quits.
fn press(view: &mut View, key: KeyEvent) -> bool {
    let is_help = std::mem::take(&mut view.help);
    view.remark = None;
    let page = view.page();
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('q') => return true,
        KeyCode::Esc => return !is_help,
        KeyCode::Char('?' | 'h') => view.help = !is_help,
        KeyCode::Char(' ') => view.paused = !view.paused,
        KeyCode::Char('r') => view.sort = Sort::Rate,
        KeyCode::Char('b') => view.sort = Sort::Bytes,
        KeyCode::Char('t') => view.sort = Sort::Total,
        KeyCode::Char('n') => view.sort = Sort::Name,
        KeyCode::Char('s') => view.sort = view.sort.next(),
        KeyCode::Tab => view.panel = view.panel.next(),
        KeyCode::Char('j') | KeyCode::Down => view.scroll_by(1),
        KeyCode::Char('k') | KeyCode::Up => view.scroll_by(-1),
        KeyCode::PageDown => view.scroll_by(page),
        KeyCode::PageUp => view.scroll_by(-page),
        KeyCode::Home | KeyCode::Char('g') => view.scroll_by(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => view.scroll_by(isize::MAX),
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let mut view = View::default();
        let mut type_key = |code| {
            let quits = press(&mut view, KeyEvent::new(code, KeyModifiers::NONE));
            (quits, view.sort, view.paused, view.help, view.panel, view.scroll[1])
        };
        use super::super::screen::Panel::{Events, Rings};
        assert_eq!(type_key(KeyCode::Char('?')), (false, Sort::Rate, false, true, Events, 0));
        assert_eq!(
            type_key(KeyCode::Esc),
            (false, Sort::Rate, false, false, Events, 0),
            "Esc leaves the help first"
        );
        assert_eq!(type_key(KeyCode::Char(' ')), (false, Sort::Rate, true, false, Events, 0));
        assert_eq!(type_key(KeyCode::Char('n')), (false, Sort::Name, true, false, Events, 0));
        assert_eq!(type_key(KeyCode::Tab), (false, Sort::Name, true, false, Rings, 0));
        assert_eq!(type_key(KeyCode::Char('j')), (false, Sort::Name, true, false, Rings, 1));
        assert_eq!(type_key(KeyCode::Up), (false, Sort::Name, true, false, Rings, 0));
        assert_eq!(type_key(KeyCode::Up), (false, Sort::Name, true, false, Rings, 0));
        assert!(type_key(KeyCode::Esc).0 && type_key(KeyCode::Char('q')).0);
        assert!(press(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!press(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)));
    }
}
