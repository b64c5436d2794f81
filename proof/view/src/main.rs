//! `cargo xtask view`: pages of `lastwords view` in a real browser: opened, read, zoomed, searched,
//! clicked, looked at.
#![forbid(unsafe_code)]

mod browser;
mod filters;
mod flames;
mod made;
mod odd;
mod service;
mod sessions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};

use browser::{Browser, Picture, Region};
use rig::scratch::Scratch;

/// Pixels of the picture that have labels, left of the timeline.
const LABELS: usize = 210;

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask view", about = "Look at pages of `lastwords view` in Chromium")]
struct Args {
    /// Also a made trace of so many events, whose times are measured
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// Compare so many generated filters with the command line's
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    filters: usize,
    /// Also pages of these inputs
    #[arg(long = "input", value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Keep the pictures in this folder
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// The program; by default it is built for release
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// The part of CI: with the program that the tests have built
    #[arg(long, conflicts_with = "lastwords")]
    quick: bool,
}

/// The data that all pages need.
struct Run<'a> {
    args: &'a Args,
    lastwords: PathBuf,
    folder: &'a Path,
    browser: Browser,
}

fn main() -> ExitCode {
    if std::env::var_os(service::ENV).is_some() {
        return rig::exit(service::run());
    }
    rig::exit(run(&Args::parse()))
}

/// Makes pages and judges them.
fn run(args: &Args) -> Result<()> {
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-view")?;
    let built = if args.quick { rig::programs::tested } else { rig::programs::lastwords };
    let lastwords = args.lastwords.clone().map_or_else(built, Ok)?;
    let run = Run { args, lastwords, folder: scratch.path(), browser: Browser::start(false)? };
    for events in [1000, 100_000].into_iter().chain(args.events) {
        run.made(events).with_context(|| format!("a made trace of {events} events"))?;
    }
    run.script(include_str!("modules.js")).context("the modules of a page")?;
    filters::expressions(args.filters, |script, arguments| run.browser.script(script, arguments))
        .context("generated filters")?;
    run.odd().context("a trace of odd values")?;
    run.session().context("a session with spans")?;
    run.death().context("a service that died in a request")?;
    run.stacks().context("a trace of stacks")?;
    run.limited().context("more events than the page may have")?;
    run.injected().context("a page with scripts of others")?;
    for input in &args.inputs {
        run.other(input).with_context(|| input.display().to_string())?;
    }
    run.dark().context("a dark page")
}

impl Run<'_> {
    /// Writes a page, and returns its path with what `view` printed.
    fn page(&self, input: &Path, name: &str, options: &[&str]) -> Result<(PathBuf, String)> {
        let page = self.folder.join(format!("{name}.html"));
        let mut command = Command::new(&self.lastwords);
        command
            .arg("view")
            .arg(input)
            .arg("-o")
            .arg(&page)
            .args(options)
            .env("LASTWORDS_DIR", self.folder.join("sessions"));
        let output = command.output().context("lastwords")?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "lastwords view: {}\n{printed}", output.status);
        Ok((page, printed))
    }

    /// Opens a page and prints how long that took.
    fn open(&self, page: &Path, what: &str) -> Result<Picture> {
        self.browser.open(page)?;
        let marks = self.browser.ask(
            "return [performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, \
             ...['head', 'drawn'].map((name) => performance.getEntriesByName(name)[0].startTime)]",
        )?;
        let size = std::fs::metadata(page)?.len();
        let number = |at: usize| marks[at].as_f64().unwrap_or(0.0);
        println!(
            "{what}: {:.1} MB; first paint after {:.0} ms, the timeline after {:.0} ms",
            size as f64 / 1e6,
            number(0),
            number(2)
        );
        let picture = self.picture(what)?;
        let complaints = self.browser.complaints()?;
        ensure!(complaints.is_empty(), "the browser complains: {complaints:?}");
        Ok(picture)
    }

    fn picture(&self, what: &str) -> Result<Picture> {
        // The next frame has what was asked for before.
        self.browser.ask("window.lastwords.draw()")?;
        let picture = self.browser.picture()?;
        if let Some(folder) = &self.args.pictures {
            std::fs::create_dir_all(folder)?;
            std::fs::write(
                folder.join(format!("{}.png", what.replace([' ', ',', '/'], "-"))),
                &picture.png,
            )?;
        }
        Ok(picture)
    }

    /// Runs a script in the page that is open, which returns what is wrong.
    fn script(&self, script: &str) -> Result<()> {
        let wrong = self.browser.ask(script)?;
        ensure!(wrong == json!([]), "{wrong:#}");
        Ok(())
    }

    /// Judges pages of values, names and texts that are easily shown as something else, and of no
    /// events.
    fn odd(&self) -> Result<()> {
        let folder = self.folder.join("odd");
        odd::write(&folder)?;
        self.open(&self.page(&folder, "odd", &[])?.0, "odd values")?;
        self.script(include_str!("odd.js"))?;
        self.chosen(&folder, &[], &odd::WORDS, 60)?;
        // With two machines, each row says whose it is.
        let other = self.folder.join("made-1000").display().to_string();
        self.open(&self.page(&folder, "machines", &[&other])?.0, "two machines")?;
        let labels = "return window.lastwords.timeline.rows.map((row) => row.label)";
        let labels = self.browser.ask(labels)?.to_string();
        for label in ["CPUs of odd", "a\u{202e}b 7 on odd", "logger 300 on made"] {
            let label = label.replace("\\u{202e}", "\u{202e}");
            ensure!(labels.contains(&label), "no row {label}: {labels}");
        }
        // That no event is left is an error, but there is a page.
        let page = self.folder.join("nothing.html");
        let mut command = Command::new(&self.lastwords);
        command
            .arg("view")
            .arg(&folder)
            .args(["-e", "nosuch", "-o"])
            .arg(&page)
            .output()
            .context("lastwords")?;
        self.open(&page, "no events")?;
        let said = self.text("#summary")? + &self.text("#content")?;
        ensure!(
            said.contains("No events") && !said.contains("1970") && !said.contains("from"),
            "{said}"
        );
        Ok(())
    }

    /// Compares the events that filters choose with those of the command line.
    fn chosen(
        &self,
        input: &Path,
        options: &[&str],
        words: &filters::Words,
        count: usize,
    ) -> Result<()> {
        let sessions = self.folder.join("sessions");
        let programs = (self.lastwords.as_path(), sessions.as_path());
        filters::rows(programs, (input, options), words, count, |script, arguments| {
            self.browser.script(script, arguments)
        })
    }

    /// Returns the region of a canvas.
    fn region(&self, element: &str) -> Result<Region> {
        let script = "const r = document.getElementById(arguments[0]).getBoundingClientRect(); \
                      return [r.left, r.top, r.width, r.height].map(Math.round)";
        let rect = self.browser.script(script, json!([element]))?;
        let number = |at: usize| rect[at].as_u64().unwrap_or(0) as usize;
        Ok((number(0), number(1), number(2), number(3)))
    }

    /// Returns the text of an element.
    fn text(&self, element: &str) -> Result<String> {
        let text = self.browser.script(
            "return document.querySelector(arguments[0])?.textContent ?? ''",
            json!([element]),
        )?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Returns the counts of events by name, as the table of statistics shows them.
    fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let script = "window.lastwords.showAll(); window.lastwords.panel.show('statistics'); \
            return [...document.querySelector('#statistics table').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))";
        let rows = self.browser.ask(script)?;
        let rows = rows.as_array().context("rows")?.iter();
        let row = |row: &Value| {
            let (name, count) =
                (row[0].as_str()?.to_owned(), row[1].as_str()?.replace(',', "").parse().ok()?);
            Some((name, count))
        };
        rows.map(row).collect::<Option<_>>().context("a count")
    }

    /// Judges the page of a trace that was made.
    fn made(&self, events: u64) -> Result<()> {
        let folder = self.folder.join(format!("made-{events}"));
        let made = made::write(&folder, events, events)?;
        let (page, printed) = self.page(&folder, &format!("made-{events}"), &[])?;
        let name = format!("made {events}");
        let picture = self.open(&page, &name)?;
        let expected: BTreeMap<String, u64> =
            made.counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let counts = self.counts()?;
        ensure!(counts == expected, "the table has {counts:?}, expected {expected:?}");
        let said = self.text("#losses")?;
        let lost = format!("{} events lost", made::LOST);
        ensure!(
            printed.contains("discarded (321 events)") && !said.contains("nothing lost"),
            "{lost}: {said:?}; {printed}"
        );
        let gaps =
            self.browser.ask("return window.lastwords.data.head.gaps.map((gap) => gap.what)")?;
        ensure!(gaps.to_string().contains("321 events: discarded"), "gaps: {gaps}");
        let again = self.open(&page, &name)?;
        let (canvas, histogram) = (self.region("timeline")?, self.region("histogram")?);
        for region in [canvas, histogram] {
            ensure!(
                picture.difference(&again, region) == 0.0,
                "the page looks different when it is opened again"
            );
            ensure!(colours(&picture, region) > 4, "nothing is drawn");
        }
        self.script(include_str!("opening.js")).context("the page as it opens")?;
        self.browser.press("0", 0)?;
        self.rows(&self.picture(&format!("{name} all"))?, canvas)?;
        self.exact(&made)?;
        self.slices(&made)?;
        self.zoom(&name, canvas)?;
        self.search_and_click(&made, &name)?;
        self.filter(&made)?;
        self.range(canvas)?;
        self.script(include_str!("deeds.js")).context("keys, rows and mouse")?;
        if events == 1000 {
            self.chosen(&folder, &[], &made::WORDS, 150)?;
        }
        if Some(events) == self.args.events || events >= 100_000 {
            self.speed(&name)?;
        }
        let complaints = self.browser.complaints()?;
        ensure!(complaints.is_empty(), "the browser complains: {complaints:?}");
        Ok(())
    }

    /// No row is empty: something is drawn right of its label.
    fn rows(&self, picture: &Picture, canvas: Region) -> Result<()> {
        let script = "const { timeline } = window.lastwords; return timeline.rows.filter((row) => row.group === null \
            && row.y + row.height + 30 < timeline.surface.height).map((row) => [row.label, row.y + 24, row.height])";
        for row in self.browser.ask(script)?.as_array().into_iter().flatten() {
            let (y, height) =
                (row[1].as_u64().unwrap_or(0) as usize, row[2].as_u64().unwrap_or(0) as usize);
            let region =
                (canvas.0 + LABELS + 2, canvas.1 + y + 2, canvas.2 - LABELS - 4, height - 4);
            ensure!(colours(picture, region) > 2, "the row {} is empty", row[0]);
        }
        Ok(())
    }

    /// Times are exact to the nanosecond.
    fn exact(&self, made: &made::Made) -> Result<()> {
        let script = "const { times, data } = window.lastwords; return String(times.exact(data.times[data.times.length - 1]))";
        let shown = self.browser.ask(script)?;
        let expected = (made::BEGIN * 1_000_000_000 + made.end).to_string();
        ensure!(shown == json!(expected), "the last event is at {shown}, expected {expected}");
        Ok(())
    }

    /// Each slice without a mark lasted as long as the page shows. Nearly all slices have none.
    fn slices(&self, made: &made::Made) -> Result<()> {
        let script = "const { data, times } = window.lastwords; const { head, slices } = data; \
            const exact = (time) => String(times.exact(time)); \
            const name = (slice, { of, owner }) => ({ thread: `thread ${head.threads[owner]?.tid}`, interrupts: `interrupts ${head.cpus[owner]?.cpu}`, \
                running: `running ${head.cpus[owner]?.cpu} ${head.threads[slices.threads[slice]]?.tid}` })[of]; \
            return [...slices.tracks.keys()].filter((slice) => slices.flags[slice] === 0) \
                .map((slice) => [name(slice, head.tracks[slices.tracks[slice]]), exact(slices.begins[slice]), exact(slices.ends[slice])])";
        let shown = self.browser.ask(script)?;
        let shown: Vec<(String, String, String)> = serde_json::from_value(shown)?;
        let since = |time: &str| time.parse::<u64>().ok()?.checked_sub(made::BEGIN * 1_000_000_000);
        for (name, begin, end) in &shown {
            let times = since(begin)
                .zip(since(end))
                .with_context(|| format!("{name}: {begin} to {end}"))?;
            ensure!(
                made.lasted.contains(&(name.clone(), times.0, times.1)),
                "{name} did not last from {} to {}",
                times.0,
                times.1
            );
        }
        let (own, all) = (shown.len(), made.lasted.len());
        println!("{own} of {all} slices have a known begin and end");
        // In a short trace, the packet in which events are missing is a large part.
        let most = if all > 10_000 { all * 4 / 5 } else { all / 3 };
        ensure!(own > most, "{own} of {all} slices have a known begin and end");
        Ok(())
    }

    /// Zooms by keys and by the histogram, to the nanosecond and back.
    fn zoom(&self, name: &str, canvas: Region) -> Result<()> {
        let range = || -> Result<f64> {
            let range =
                self.browser.ask("const { from, to } = window.lastwords.view; return to - from")?;
            range.as_f64().context("a range")
        };
        let before = self.picture(&format!("{name} whole"))?;
        let whole = range()?;
        self.browser.press("w", 300)?;
        ensure!(range()? < whole * 0.7, "W does not zoom in");
        let after = self.picture(&format!("{name} zoomed"))?;
        ensure!(before.difference(&after, canvas) > 0.01, "zooming does not change what is drawn");
        let from = self.browser.ask("return window.lastwords.view.from")?;
        self.browser.press("d", 200)?;
        ensure!(
            self.browser.ask("return window.lastwords.view.from")?.as_f64() > from.as_f64(),
            "D does not move"
        );
        self.browser.press("s", 100)?;
        self.browser.ask("for (let at = 0; at < 60; at++) window.lastwords.zoom(0.5)")?;
        ensure!(range()? <= 20.0, "the smallest range is {} ns", range()?);
        self.picture(&format!("{name} nanoseconds"))?;
        self.browser.press("0", 0)?;
        ensure!((range()? - whole).abs() < 1.0, "0 does not show everything");
        let (left, top, width, height) = self.region("histogram")?;
        let at = |part: usize| {
            ((left + LABELS + (width - LABELS) * part / 10) as i64, (top + height / 2) as i64)
        };
        self.browser.drag(at(4), at(6))?;
        ensure!(
            (range()? / whole - 0.2).abs() < 0.05,
            "dragging in the histogram shows {} of {whole}",
            range()?
        );
        self.browser.press("0", 0)
    }

    /// Searches a hostile text, and looks at all fields of an event that has it.
    fn search_and_click(&self, made: &made::Made, name: &str) -> Result<()> {
        let expected = made.counts.get("app:failure").copied().unwrap_or(0);
        self.browser.write("#search", &format!("{}\u{e007}", made::HOSTILE))?;
        self.browser.wait("/ of |^0 found$/.test(document.getElementById('found').textContent)")?;
        let found = self.text("#found")?.replace(',', "");
        ensure!(
            expected == 0 || found == format!("1 of {expected}"),
            "found {found}, expected {expected}"
        );
        if expected > 0 {
            self.browser
                .wait("document.querySelector('#content h2')?.textContent === 'app:failure'")?;
            let fields = self.text("#content")?;
            ensure!(fields.contains(made::HOSTILE), "fields: {fields}");
            // Numbers of 64 bits keep their digits.
            let script = "const { data, results } = window.lastwords; let large = 0; let wrong = 0; \
                const one = async (row) => { const { text, value } = await data.fields.of(row); const shown = valueText(value.fields.number); \
                    if (shown.length > 16) large++; if (!text.includes(`\"number\":${shown}}`)) wrong++; }; \
                let valueText; return (async () => { ({ valueText } = await import('view/details.js')); for (const row of results.items.slice(0, 50)) await one(row); return [large, wrong]; })()";
            let numbers = self.browser.ask(script)?;
            ensure!(
                numbers[0].as_u64() > Some(0) && numbers[1] == json!(0),
                "large and wrong numbers: {numbers}"
            );
        }
        let hacked = self
            .browser
            .ask("return window.hacked === undefined && document.images.length === 0")?;
        ensure!(hacked == json!(true), "a text of the trace became a part of the page");
        self.picture(&format!("{name} found"))?;
        self.browser.write("#search", "\u{e007}")?;
        self.browser.press("\u{e00c}", 0)
    }

    /// Filters by glob and field.
    fn filter(&self, made: &made::Made) -> Result<()> {
        let count = |name: &str| made.counts.get(name).copied().unwrap_or(0);
        self.browser.write("#filter", "event ~ \"syscall_*\"\u{e007}")?;
        let calls = count("syscall_entry_read") + count("syscall_exit_read");
        self.browser.wait("/ of /.test(document.getElementById('filtered').textContent)")?;
        let shown = self.text("#filtered")?.replace(',', "");
        ensure!(shown.starts_with(&format!("{calls} of ")), "filtered: {shown}, expected {calls}");
        self.browser.write(
            "#filter",
            "event == \"sched_switch\" && prev_tid == 100 && next_tid != 100\u{e007}",
        )?;
        let own = "const { data, marks } = window.lastwords; const rows = marks.every.all.items; \
            return [rows.length, [...rows].every((row) => data.head.threads[data.threads[row]].tid === 100)]";
        self.browser.wait("window.lastwords.marks.every.all.items.length < window.lastwords.data.head.counted / 10")?;
        let of = self.browser.ask(own)?;
        ensure!(of[0].as_u64().unwrap_or(0) > 0 && of[1] == json!(true), "filtered by field: {of}");
        self.browser.write("#filter", "\u{e007}")?;
        self.browser.wait(
            "window.lastwords.marks.every.all.items.length === window.lastwords.data.head.counted",
        )
    }

    /// Chooses a range for its statistics, which are the events in it.
    fn range(&self, canvas: Region) -> Result<()> {
        let (left, top, width, _) = canvas;
        let at = |part: usize| {
            ((left + LABELS + (width - LABELS) * part / 10) as i64, (top + 60) as i64)
        };
        self.browser.drag(at(2), at(5))?;
        let script = "const { timeline, data } = window.lastwords; const [from, to] = timeline.range; let count = 0; \
            for (const time of data.times) if (time >= from && time <= to) count++; return count";
        let expected = self.browser.ask(script)?.as_u64().context("a count")?;
        let sum: u64 = self.counts()?.values().sum();
        ensure!(
            sum == expected && sum > 0,
            "the range has {sum} events by its table, expected {expected}"
        );
        self.browser.press("\u{e00c}", 0)
    }

    /// Measures how many frames a second are drawn while zooming.
    fn speed(&self, name: &str) -> Result<()> {
        let script = "const app = window.lastwords; const begun = performance.now(); let frames = 0; \
            for (const factor of [0.9, 1 / 0.9]) for (let at = 0; at < 60; at++) { app.zoom(factor, app.data.head.home[1] / 2); app.draw(); frames++; } \
            app.timeline.surface.context.getImageData(0, 0, 1, 1); return frames * 1000 / (performance.now() - begun)";
        let frames = self.browser.ask(script)?.as_f64().context("frames")?;
        println!("{name}: {frames:.0} frames a second while zooming");
        Ok(())
    }

    /// A page with a limit has the newest events, and says so.
    fn limited(&self) -> Result<()> {
        let (page, printed) =
            self.page(&self.folder.join("made-100000"), "limited", &["--limit", "5000"])?;
        ensure!(printed.contains("the newest 5000 of 100000 events"), "{printed}");
        self.open(&page, "limited")?;
        let said = self.text("#limit")?;
        ensure!(said.contains("100,000"), "{said:?}");
        ensure!(self.counts()?.values().sum::<u64>() == 5000, "the table has other events");
        // The fields of the first and of the last event are theirs; the first ones are read as
        // browsers without `fromBase64` do.
        for row in [4999, 0] {
            let script = "const { times, data } = window.lastwords; const row = arguments[0]; \
                if (row === 0) delete Uint8Array.fromBase64; \
                return data.fields.of(row).then(({ value }) => [String(value.ticks[''] ?? value.ticks), String(times.exact(data.times[row])), data.times.length])";
            let event = self.browser.script(script, json!([row]))?;
            let ticks = event[0]
                .as_str()
                .and_then(|ticks| ticks.parse::<u64>().ok())
                .context("a clock's reading")?;
            let expected = (ticks + made::BEGIN * 1_000_000_000).to_string();
            ensure!(
                event[1] == json!(expected) && event[2] == json!(5000),
                "event {row}: {event}, expected {expected}"
            );
        }
        Ok(())
    }

    /// Puts scripts of others into a page, in each way in which a browser runs one. None of them
    /// runs, and the page works.
    fn injected(&self) -> Result<()> {
        let page = std::fs::read_to_string(self.folder.join("made-1000.html"))
            .context("a page that was made before")?;
        let evil = "window.evil = (window.evil ?? 0) + 1";
        let scripts = [
            format!("<script>{evil}</script>"),
            format!("<script type=\"module\">{evil}</script>"),
            format!("<script type=\"module\">import 'data:text/javascript,{evil}'</script>"),
            format!("<script src='data:text/javascript,{evil}'></script>"),
            format!("<img src=\"x\" onerror=\"{evil}\"><svg onload=\"{evil}\"></svg>"),
            format!(
                "<iframe srcdoc=\"<script>parent.{evil}</script>\"></iframe><a id=\"link-of-others\" href=\"javascript:{evil}\">x</a>"
            ),
        ];
        for place in ["<header", "</body>"] {
            ensure!(page.contains(place), "the page has no {place}");
            let injected = self.folder.join("injected.html");
            std::fs::write(
                &injected,
                page.replacen(place, &format!("{}{place}", scripts.concat()), 1),
            )?;
            self.browser.open(&injected)?;
            ensure!(self.counts()?.values().sum::<u64>() == 1000, "the page does not work");
            let script = "document.getElementById('link-of-others').click(); \
                return new Promise((done) => setTimeout(() => done(window.evil ?? 0), 100))";
            let ran = self.browser.ask(script)?;
            ensure!(ran == json!(0), "{ran} scripts of others ran before {place}");
        }
        // Their failures are said in the browser's log, which is not that of the next page.
        self.browser.complaints().map(drop)
    }

    /// Opens the page of another input.
    fn other(&self, input: &Path) -> Result<()> {
        let name =
            input.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (page, _) = self.page(input, &name, &[])?;
        let picture = self.open(&page, &name)?;
        self.rows(&picture, self.region("timeline")?)?;
        self.speed(&name)
    }

    /// The page is dark where the user's system is, but not on paper.
    fn dark(&self) -> Result<()> {
        let browser = Browser::start(true)?;
        browser.open(&self.folder.join("made-1000.html"))?;
        let picture = browser.picture()?;
        let corner = picture.colour(700, 895);
        if corner.iter().any(|part| *part > 80) {
            bail!("the page is not dark: {corner:?}");
        }
        browser.ask("window.dispatchEvent(new Event('beforeprint'))")?;
        let printed = browser.picture()?.colour(700, 895);
        ensure!(printed.iter().all(|part| *part > 200), "the page is printed dark: {printed:?}");
        browser.ask("window.dispatchEvent(new Event('afterprint'))")?;
        ensure!(browser.print()? > 20_000, "the page is printed empty");
        if let Some(folder) = &self.args.pictures {
            std::fs::write(folder.join("dark.png"), &picture.png)?;
        }
        Ok(())
    }
}

/// Returns the number of different colours in a region.
fn colours(picture: &Picture, region: Region) -> usize {
    let mut colours = picture.region(region);
    colours.sort_unstable();
    colours.dedup();
    colours.len()
}
