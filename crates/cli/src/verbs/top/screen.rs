//! Draws a reading on a terminal of any size.

use super::reading::{Reading, Sort};
use super::text::{self, EVENTS, RINGS, SPANS};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use std::borrow::Cow;

/// Most lines of losses.
const MOST_LOSSES: usize = 4;

/// A screen with fewer rows shows the events only.
const LOW: u16 = 16;

/// The tables, in the order in which they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Panel {
    #[default]
    Events,
    Rings,
    Spans,
}

/// The columns of a table. Where the terminal is too narrow for all of them, whole columns are left
/// out; only text is cut.
struct Columns {
    titles: &'static [&'static str],
    /// The column that is cut where it does not fit. It is always shown.
    text: usize,
    /// The other columns, the first to be left out first.
    left_out: &'static [usize],
}

const COLUMNS: [Columns; 3] = [
    Columns { titles: &EVENTS, text: 5, left_out: &[4, 3, 1, 2, 0] },
    Columns { titles: &RINGS, text: 0, left_out: &[2, 6, 3, 5, 7, 4, 1] },
    Columns { titles: &SPANS, text: 3, left_out: &[2, 1, 0] },
];

/// Blanks between two columns.
const SPACING: u16 = 2;
/// Columns are left out before less than this is left of a text.
const SHORT: u16 = 16;

/// The view that the user has chosen.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) sort: Sort,
    /// The table that the keys scroll.
    pub(super) panel: Panel,
    /// The first row of each table that is shown.
    pub(super) scroll: [usize; 3],
    /// The reading on the screen stays.
    pub(super) paused: bool,
    /// The keys are shown in place of the reading.
    pub(super) help: bool,
    /// Colours may be used.
    pub(super) coloured: bool,
    /// A remark for the last line.
    pub(super) remark: Option<String>,
    /// Number of rows of each table that were shown last.
    pub(super) rows: [usize; 3],
}

impl Panel {
    /// Returns the next panel.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Events => Self::Rings,
            Self::Rings => Self::Spans,
            Self::Spans => Self::Events,
        }
    }
}

impl View {
    /// Scrolls the table with the focus by some rows. The next drawing limits it to the rows that
    /// there are.
    pub(super) fn scroll_by(&mut self, rows: isize) {
        let at = &mut self.scroll[self.panel as usize];
        *at = at.saturating_add_signed(rows);
    }

    /// Returns the number of rows that a page of the table with the focus has.
    pub(super) fn page(&self) -> isize {
        isize::try_from(self.rows[self.panel as usize]).unwrap_or(1).max(1)
    }

    fn style(&self, colour: Color) -> Style {
        if self.coloured { Style::new().fg(colour) } else { Style::new() }
    }
}

const KEYS: &str = "\
q, Esc, Ctrl-C      quit
Space               hold the screen; counting goes on
r  b  t  n          sort events by rate, bytes, total, name; s is the next order
Tab                 scroll the next table
j  k  Down  Up      scroll by a row; PageDown, PageUp, Home, End
?                   this help

EVENTS/S, BYTES/S   in the newest interval
EVENTS, BYTES       what the rings held at first, and all since
FULL                part of the ring that holds events; 100 % once it overwrites
OLDEST              time since the ring's oldest event
HOLDS               time that the whole ring holds at the rate of the newest interval";

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, reading: Option<&Reading>, view: &mut View) {
    let area = frame.area();
    if view.help {
        return frame.render_widget(Paragraph::new(KEYS), area);
    }
    let Some(reading) = reading else {
        return frame.render_widget(Paragraph::new("reading the session ..."), area);
    };
    let losses = text::losses(reading);
    let shown = losses.len().min(MOST_LOSSES);
    let (rings, spans) = (text::used(&reading.rings).count(), reading.spans().len());
    // A table has its rows and a head; the events get what is left.
    let rows = |count: usize| {
        if count == 0 || area.height < LOW { 0 } else { length(count + 2).min(area.height / 4) }
    };
    let parts = [
        Constraint::Length(2),
        Constraint::Length(length(shown)),
        Constraint::Min(0),
        Constraint::Length(rows(rings)),
        Constraint::Length(rows(spans)),
        Constraint::Length(1),
    ];
    let [head, lost, events, of_rings, of_spans, foot] = Layout::vertical(parts).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let top = [text::head(reading), text::sums(reading)];
    let [name, sums] = top.each_ref().map(|line| fitted(line, area.width));
    frame.render_widget(Paragraph::new(vec![Line::styled(name, bold), Line::raw(sums)]), head);
    let colour = if reading.losses.is_empty() { Color::Green } else { Color::Red };
    let lines: Vec<Line<'_>> = losses
        .iter()
        .take(shown)
        .map(|line| Line::styled(fitted(line, area.width), view.style(colour)))
        .collect();
    frame.render_widget(Paragraph::new(lines), lost);
    let mut rows = reading.events.clone();
    view.sort.sort(&mut rows);
    let cells = rows.iter().map(|row| text::event(row).to_vec()).collect();
    panel(frame, events, view, Panel::Events, cells);
    let cells = text::used(&reading.rings).map(|row| text::ring(row).to_vec()).collect();
    panel(frame, of_rings, view, Panel::Rings, cells);
    let cells = reading.spans().iter().map(|row| text::span(reading, row).to_vec()).collect();
    panel(frame, of_spans, view, Panel::Spans, cells);
    frame.render_widget(Paragraph::new(footer(view)), foot);
}

fn footer(view: &View) -> Line<'_> {
    let paused = if view.paused { "HELD (Space goes on)  " } else { "" };
    let keys = format!(
        "{paused}q quit  Space hold  sorted by {} (r b t n)  Tab, j, k scroll  ? help",
        view.sort.word()
    );
    Line::styled(view.remark.clone().unwrap_or(keys), Style::new().add_modifier(Modifier::REVERSED))
}

fn length(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Returns a text, or as much of it as fits a width, with a sign that the rest is missing.
fn fitted(text: &str, width: u16) -> Cow<'_, str> {
    let fits = |text: &str, room: u16| Line::raw(text).width() <= usize::from(room);
    if fits(text, width) {
        return text.into();
    }
    let mut cut = text;
    while let Some((at, _)) =
        cut.char_indices().next_back().filter(|_| !fits(cut, width.saturating_sub(1)))
    {
        cut = cut.get(..at).unwrap_or_default();
    }
    format!("{cut}\u{2026}").into()
}

impl Columns {
    /// Returns the columns that are shown in a width, and the width of each. `widths` has those of
    /// whole columns.
    fn shown(&self, widths: &[u16], room: u16) -> Vec<(usize, u16)> {
        let width = |column: usize| widths.get(column).copied().unwrap_or(0);
        let mut shown: Vec<usize> = (0..widths.len()).collect();
        let others = |shown: &[usize]| {
            let others = shown.iter().filter(|column| **column != self.text);
            others.map(|column| width(*column).saturating_add(SPACING)).fold(0, u16::saturating_add)
        };
        for column in self.left_out {
            if others(&shown).saturating_add(width(self.text).min(SHORT)) <= room {
                break;
            }
            shown.retain(|own| own != column);
        }
        let left = room.saturating_sub(others(&shown)).min(width(self.text));
        shown
            .into_iter()
            .map(|column| (column, if column == self.text { left } else { width(column) }))
            .collect()
    }
}

/// Draws the rows of a table that fit from where it is scrolled to.
fn panel(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &mut View,
    panel: Panel,
    cells: Vec<Vec<String>>,
) {
    let columns = &COLUMNS[panel as usize];
    // The head takes a row.
    let room = usize::from(area.height.saturating_sub(1));
    let at = &mut view.scroll[panel as usize];
    *at = (*at).min(cells.len().saturating_sub(room));
    let from = *at;
    view.rows[panel as usize] = room;
    let is_number = |column: usize| {
        cells.iter().all(|row| {
            row.get(column)
                .is_some_and(|cell| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let width = |(column, title): (usize, &&str)| {
        let of_cells =
            cells.iter().filter_map(|row| row.get(column)).map(|text| Line::raw(text).width());
        length(of_cells.chain([title.len()]).max().unwrap_or(0))
    };
    let widths: Vec<u16> = columns.titles.iter().enumerate().map(width).collect();
    let shown = columns.shown(&widths, area.width);
    let right: Vec<bool> =
        (0..widths.len()).map(|column| !cells.is_empty() && is_number(column)).collect();
    let row = |texts: &[&str]| {
        let cell = |(column, width): &(usize, u16)| {
            let text = texts.get(*column).copied().unwrap_or_default();
            let line = Line::raw(fitted(text, *width).into_owned());
            Cell::from(if right.get(*column) == Some(&true) { line.right_aligned() } else { line })
        };
        Row::new(shown.iter().map(cell))
    };
    let rows: Vec<Row<'_>> = cells
        .iter()
        .skip(from)
        .take(room)
        .map(|cells| row(&cells.iter().map(String::as_str).collect::<Vec<_>>()))
        .collect();
    let modifier =
        if view.panel == panel { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
    let titles = row(columns.titles).style(view.style(Color::Cyan).add_modifier(modifier));
    let widths = shown.iter().map(|(_, width)| Constraint::Length(*width));
    frame.render_widget(Table::new(rows, widths).header(titles).column_spacing(SPACING), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::top::reading::tests::reading;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, reading: Option<&Reading>, view: &mut View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, reading, view)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y: u16| {
            (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned()
        };
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_screen_has_rates_rings_spans_and_losses() {
        let text = drawn(100, 24, Some(&reading()), &mut View::default());
        for part in [
            "svc: live; in 2.0 s",
            "lost: channel main: 3 events (1 of them in this interval), discarded: the ring was full",
            "EVENTS/S  BYTES/S  EVENTS  BYTES  CHANNEL  EVENT",
            "    50.0     1600    1000  32000  main     shop:order",
            "     0.5     12.0       1     24  main     shop:end",
            "main       0  overwrite  1.00 MiB  100 %      800   4.0 s  22 min",
            "shop::payment{id=7}",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    /// However narrow the terminal is, each number that is shown is whole, and what is cut ends
    /// with a sign for that.
    #[test]
    fn numbers_are_whole_at_any_width() {
        let mut reading = reading();
        for (row, size) in reading.events.iter_mut().zip([87_654_321, 12_345_678]) {
            row.total = lastwords_open::Count { events: size, bytes: size * 24 };
            (row.events_per_second, row.bytes_per_second) = (size as f64, size as f64 * 24.0);
            row.event.push_str("::a_name_that_is_longer_than_a_narrow_terminal");
        }
        let drawn = |width| drawn(width, 24, Some(&reading), &mut View::default());
        let whole = drawn(400);
        let known: Vec<&str> = whole.split_whitespace().collect();
        let starts = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in 20..=200 {
            let text = drawn(width);
            // The last line has the keys.
            for part in text.lines().take(23).flat_map(starts) {
                assert!(
                    known.contains(&part.as_str()) || part.ends_with('\u{2026}'),
                    "{width}: {part}\n{text}"
                );
            }
            assert!(text.contains("shop:") && text.contains("EVENT"), "{width}\n{text}");
        }
        assert!(
            drawn(80).contains("87654321  2103703704  87654321  2103703704  main"),
            "{}",
            drawn(80)
        );
    }

    /// The order changes which event comes first.
    #[test]
    fn events_are_sorted() {
        let first = |sort| {
            let text = drawn(100, 24, Some(&reading()), &mut View { sort, ..View::default() });
            let mut lines = text.lines().skip_while(|line| !line.contains("EVENTS/S")).skip(1);
            lines
                .next()
                .and_then(|line| line.split_whitespace().last())
                .map(str::to_owned)
                .unwrap_or_default()
        };
        assert_eq!([Sort::Rate, Sort::Bytes, Sort::Total].map(first), ["shop:order"; 3]);
        assert_eq!(first(Sort::Name), "shop:end");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let reading = reading();
        for (width, height) in (0..=12u16)
            .flat_map(|width| (0..=12u16).map(move |height| (width, height)))
            .chain([(1, 200), (400, 1)])
        {
            for help in [false, true] {
                for panel in [Panel::Events, Panel::Rings, Panel::Spans] {
                    let mut view = View {
                        help,
                        panel,
                        scroll: [usize::MAX; 3],
                        coloured: true,
                        ..View::default()
                    };
                    drawn(width, height, Some(&reading), &mut view);
                    drawn(width, height, None, &mut view);
                    view.scroll_by(-3);
                    view.scroll_by(view.page());
                }
            }
        }
    }

    #[test]
    fn scrolling_ends_at_the_last_row() {
        let mut view = View { scroll: [1000, 0, 0], ..View::default() };
        let text = drawn(80, 40, Some(&reading()), &mut view);
        assert!(text.contains("shop:order") && view.scroll[0] == 0, "all rows fit\n{text}");
        let mut view = View { scroll: [1000, 0, 0], ..View::default() };
        let text = drawn(80, 6, Some(&reading()), &mut view);
        assert!(view.scroll[0] > 0 && text.contains("shop:end"), "{text}");
    }
}
