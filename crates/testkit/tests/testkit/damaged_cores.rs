//! Cores cut at 4,096 places, plain and compressed; a page that was left out is not a page of
//! zeroes.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common;
use crate::common::{Found, Watchdog, image};
use lastwords_bytes::Budget;
use lastwords_image::unwatched;
use lastwords_testkit::elf::{self, Segment};
use lastwords_testkit::image::Image;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::evidence::Verdict;

/// A file of this test that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path =
            std::env::temp_dir().join(format!("lastwords-p10-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a scratch file");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn recover(path: &Path) -> Found {
    let opened = lastwords_image::open(path, &Budget::default(), &unwatched).expect("a file");
    image::walk_image(&opened.image, false).expect("no budget is spent")
}

/// Shortens the file step by step; fewer bytes never give more events.
fn cut(name: &'static str, bytes: &[u8], cuts: usize) {
    let file = Scratch::new(name, bytes);
    let handle = File::options().write(true).open(&file.0).expect("the scratch file");
    let whole = recover(&file.0);
    let mut most = whole.events();
    assert!(most > 100, "{name} holds events");
    let watchdog = Watchdog::new(name, Duration::from_secs(20));
    for n in (0..=cuts).rev() {
        watchdog.case(n as u64);
        let len = (bytes.len() as u64 * n as u64) / cuts as u64;
        handle.set_len(len).expect("a shorter file");
        let found = recover(&file.0);
        let events = found.events();
        assert!(events <= most, "{name}: {events} events of {len} bytes, {most} of more");
        let said = found.evidence != whole.evidence || found.sessions == 0;
        assert!(
            events == whole.events() || said,
            "{name}: {len} bytes lack events, nothing says so"
        );
        most = events;
    }
    assert_eq!(most, 0, "no bytes, no events");
}

#[test]
fn cores_cut_at_four_thousand_places() {
    cut("paged", &samples::paged().image().core(), 4096);
    cut("small", &samples::small(Order::Little).image().core(), 4096);
}

#[test]
fn compressed_cores_cut() {
    cut("compressed", &elf::zstd(&samples::small(Order::Little).image().core()), 512);
}

/// A core of the image in which page `left_out` of the heap has no bytes.
fn without_page(image: &Image, left_out: usize) -> Vec<u8> {
    let mut segments: Vec<Segment> = Vec::new();
    for (n, (at, bytes)) in image.pages.iter().enumerate() {
        let mut segment = Segment::new(*at, bytes);
        if n == left_out {
            segment.bytes.clear();
        }
        segments.push(segment);
    }
    for (n, region) in image.regions.iter().enumerate() {
        segments.push(Segment::new(0x7f00_0000_0000 + ((n as u64) << 24), &region.bytes));
    }
    segments.sort_by_key(|s| s.address);
    elf::core(image.order, &segments)
}

#[test]
fn a_page_left_out_is_missing_and_not_zeroes() {
    let session = samples::paged();
    let image = session.image();
    let whole = common::truth(&session, |ring| ring.live);
    let pages = session.rings[0].spec.count as usize;
    for left_out in 0..pages {
        let file = Scratch::new("left-out", &without_page(&image, left_out));
        let found = recover(&file.0);
        let mut missing = 0;
        for (key, (verdict, events)) in &whole {
            match &found.subs[key] {
                sub if sub.verdict == Verdict::Missing => {
                    assert!(sub.events.is_empty(), "{key:?}: events out of nothing");
                    missing += 1;
                }
                sub => assert_eq!(
                    (sub.verdict, &sub.events),
                    (*verdict, events),
                    "{key:?} without page {left_out}"
                ),
            }
        }
        assert_eq!(missing, 1, "a page is a sub-buffer here");
    }
}
