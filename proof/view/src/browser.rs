//! Drives Chromium by the WebDriver protocol (<https://www.w3.org/TR/webdriver2/>) of its driver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Longest that a page may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size of the window's content in pixels.
pub(super) const WIDTH: u32 = 1400;
pub(super) const HEIGHT: u32 = 900;

/// A browser with one window.
pub(super) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    address: String,
}

/// A picture of the window.
pub(super) struct Picture {
    pub(super) png: Vec<u8>,
    width: usize,
    pixels: Vec<u8>,
    channels: usize,
}

impl Browser {
    /// Starts the driver on a port that is free, and a browser.
    pub(super) fn start(is_dark: bool) -> Result<Self> {
        let mut driver = Command::new("chromedriver");
        driver.args(["--port=0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().context("chromedriver: cargo xtask setup")?;
        let lines = BufReader::new(driver.stdout.take().context("its stdout")?).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let port =
                line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>();
            port.ok()
        });
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE));
        let mut browser = Self { driver, agent: config.build().into(), address: String::new() };
        let address = format!("http://127.0.0.1:{}", port.context("chromedriver did not start")?);
        browser.address = address;
        let mut arguments =
            vec!["--headless=new".to_owned(), "--no-sandbox".into(), "--disable-gpu".into()];
        arguments.push(format!("--window-size={WIDTH},{HEIGHT}"));
        if is_dark {
            arguments.push("--blink-settings=preferredColorScheme=0".into());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        }}});
        let session = browser.call("POST", "/session", Some(wanted))?;
        let id = session["sessionId"].as_str().context("the id of the session")?.to_owned();
        browser.address.push_str(&format!("/session/{id}"));
        let missing = browser.ask("return [outerWidth - innerWidth, outerHeight - innerHeight]")?;
        let size = |at: usize, inner: u32| u64::from(inner) + missing[at].as_u64().unwrap_or(0);
        let rect = json!({ "width": size(0, WIDTH), "height": size(1, HEIGHT) });
        browser.call("POST", "/window/rect", Some(rect))?;
        Ok(browser)
    }

    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
        let address = format!("{}{path}", self.address);
        let mut response = match (method, body) {
            ("POST", body) => self.agent.post(&address).send_json(body.unwrap_or(json!({})))?,
            ("DELETE", _) => self.agent.delete(&address).call()?,
            _ => self.agent.get(&address).call()?,
        };
        let limit = response.body_mut().with_config().limit(256 << 20);
        let answer: Value = serde_json::from_str(&limit.read_to_string()?)?;
        let value = &answer["value"];
        ensure!(
            value["error"].is_null(),
            "{method} {path}: {}: {}",
            value["error"],
            value["message"]
        );
        Ok(value.clone())
    }

    /// Runs a script without arguments in the page, and returns its value.
    pub(super) fn ask(&self, script: &str) -> Result<Value> {
        self.script(script, json!([]))
    }

    /// Runs JavaScript in the page, and returns what it returns.
    pub(super) fn script(&self, script: &str, arguments: Value) -> Result<Value> {
        self.call("POST", "/execute/sync", Some(json!({ "script": script, "args": arguments })))
    }

    /// Opens a page from the disk, and waits until it has drawn its events.
    pub(super) fn open(&self, page: &Path) -> Result<()> {
        self.call("POST", "/url", Some(json!({ "url": format!("file://{}", page.display()) })))?;
        self.wait("document.documentElement.dataset.ready === 'yes'")
    }

    /// Waits until a condition holds.
    pub(super) fn wait(&self, condition: &str) -> Result<()> {
        let begun = Instant::now();
        while self.ask(&format!("return Boolean({condition})"))? != json!(true) {
            if begun.elapsed() > PATIENCE {
                let died = self.ask("return document.getElementById('died')?.textContent")?;
                bail!("{condition}: not after {PATIENCE:?}; the page says {died}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Types into an element; `\u{e007}` is Enter.
    pub(super) fn write(&self, element: &str, text: &str) -> Result<()> {
        let found = self.call(
            "POST",
            "/element",
            Some(json!({ "using": "css selector", "value": element })),
        )?;
        let id = found
            .as_object()
            .and_then(|ids| ids.values().next())
            .and_then(Value::as_str)
            .context("an element")?;
        self.call("POST", &format!("/element/{id}/clear"), None)?;
        self.call("POST", &format!("/element/{id}/value"), Some(json!({ "text": text })))?;
        Ok(())
    }

    /// Presses a key for a time.
    pub(super) fn press(&self, key: &str, milliseconds: u64) -> Result<()> {
        self.ask("document.activeElement.blur()")?;
        let actions = json!([
            { "type": "keyDown", "value": key },
            { "type": "pause", "duration": milliseconds },
            { "type": "keyUp", "value": key },
        ]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.call("POST", "/actions", Some(actions))?;
        Ok(())
    }

    /// Presses the mouse at a place and lets it go at another.
    pub(super) fn drag(&self, from: (i64, i64), to: (i64, i64)) -> Result<()> {
        let go =
            |(x, y): (i64, i64)| json!({ "type": "pointerMove", "x": x, "y": y, "duration": 0 });
        let middle = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
        let mut actions = vec![go(from), json!({ "type": "pointerDown", "button": 0 })];
        if from != to {
            actions.extend([go(middle), go(to)]);
        }
        actions.push(json!({ "type": "pointerUp", "button": 0 }));
        let mouse = json!({ "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" }, "actions": actions });
        self.call("POST", "/actions", Some(json!({ "actions": [mouse] })))?;
        Ok(())
    }

    /// Returns a picture of the window.
    pub(super) fn picture(&self) -> Result<Picture> {
        use base64::Engine as _;
        let text = self.call("GET", "/screenshot", None)?;
        let png = base64::engine::general_purpose::STANDARD
            .decode(text.as_str().context("a picture")?)?;
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info()?;
        let mut pixels = vec![0; reader.output_buffer_size().context("a picture of this size")?];
        let info = reader.next_frame(&mut pixels)?;
        let (width, channels) = (info.width as usize, info.color_type.samples());
        Ok(Picture { width, channels, pixels, png })
    }

    /// Prints the page, and returns the size of the PDF.
    pub(super) fn print(&self) -> Result<usize> {
        let pdf = self.call("POST", "/print", Some(json!({ "background": true })))?;
        Ok(pdf.as_str().map_or(0, |text| text.len() / 4 * 3))
    }

    /// Returns what the browser complained about since it was asked before.
    pub(super) fn complaints(&self) -> Result<Vec<String>> {
        let entries = self.call("POST", "/se/log", Some(json!({ "type": "browser" })))?;
        let bad = entries
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry["level"] != "INFO" && entry["level"] != "DEBUG");
        Ok(bad.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.call("DELETE", "", None);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A part of a picture: left, top, width and height.
pub(super) type Region = (usize, usize, usize, usize);

impl Picture {
    /// Returns the colour of a pixel.
    pub(super) fn colour(&self, x: usize, y: usize) -> [u8; 3] {
        let at = (y * self.width + x) * self.channels;
        let pixel = self.pixels.get(at..at + 3).unwrap_or(&[0; 3]);
        [pixel[0], pixel[1], pixel[2]]
    }

    /// Returns the colours of a region, row by row.
    pub(super) fn region(&self, (left, top, width, height): Region) -> Vec<[u8; 3]> {
        (top..top + height)
            .flat_map(|y| (left..left + width).map(move |x| self.colour(x, y)))
            .collect()
    }

    /// Returns the part of a region's pixels, from 0 to 1, that differ from those of another
    /// picture.
    pub(super) fn difference(&self, other: &Self, region: Region) -> f64 {
        let (own, others) = (self.region(region), other.region(region));
        let different = own.iter().zip(&others).filter(|(a, b)| a != b).count();
        different as f64 / own.len().max(1) as f64
    }
}
