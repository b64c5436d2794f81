//! Assembles the page from the files in `page/` and the data.
//!
//! The modules are in an import map as `data:` addresses, so that they stay plain ES modules and
//! the page needs no other file. The page's policy names the hash of each script and of each
//! module, so that the browser runs no other, whatever text of a trace gets into the page. The
//! import map has the hashes of the modules too, because a browser compares these with the policy
//! before it loads a module.
//!
//! The parts that are shown first come first: the program, the columns, and at last the fields of
//! events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Write};

const INDEX: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/style.css");

/// The modules, by the names by which they import each other.
const MODULES: &[(&str, &str)] = &[
    ("view/canvas.js", include_str!("../page/canvas.js")),
    ("view/cursor.js", include_str!("../page/cursor.js")),
    ("view/data.js", include_str!("../page/data.js")),
    ("view/details.js", include_str!("../page/details.js")),
    ("view/dom.js", include_str!("../page/dom.js")),
    ("view/ending.js", include_str!("../page/ending.js")),
    ("view/fields.js", include_str!("../page/fields.js")),
    ("view/filter.js", include_str!("../page/filter.js")),
    ("view/flame.js", include_str!("../page/flame.js")),
    ("view/head.js", include_str!("../page/head.js")),
    ("view/histogram.js", include_str!("../page/histogram.js")),
    ("view/judge.js", include_str!("../page/judge.js")),
    ("view/keys.js", include_str!("../page/keys.js")),
    ("view/list.js", include_str!("../page/list.js")),
    ("view/main.js", include_str!("../page/main.js")),
    ("view/rows.js", include_str!("../page/rows.js")),
    ("view/search.js", include_str!("../page/search.js")),
    ("view/texts.js", include_str!("../page/texts.js")),
    ("view/time.js", include_str!("../page/time.js")),
    ("view/timeline.js", include_str!("../page/timeline.js")),
];

/// The script that starts the program.
const START: &str = "import \"view/main.js\";";

/// Returns the hash of a script, as a policy and an import map have it.
fn hash(script: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(script)))
}

/// Returns the import map.
fn import_map() -> String {
    let address = |text: &str| format!("data:text/javascript;base64,{}", STANDARD.encode(text));
    let imports: BTreeMap<_, _> =
        MODULES.iter().map(|(name, text)| (*name, address(text))).collect();
    let integrity: BTreeMap<_, _> =
        MODULES.iter().map(|(_, text)| (address(text), hash(text))).collect();
    serde_json::json!({ "imports": imports, "integrity": integrity }).to_string()
}

/// Returns the scripts that the policy allows.
fn allowed() -> String {
    let modules = MODULES.iter().map(|(_, text)| hash(text));
    let all = [hash(&import_map()), hash(START)].into_iter().chain(modules);
    all.map(|hash| format!("'{hash}'")).collect::<Vec<_>>().join(" ")
}

/// A page that is being written.
pub(crate) struct Html<'o> {
    out: &'o mut dyn Write,
    rest: &'static str,
}

impl<'o> Html<'o> {
    /// Writes the page up to its data.
    pub(crate) fn begin(out: &'o mut dyn Write, title: &str) -> io::Result<Self> {
        let mut html = Self { out, rest: INDEX };
        html.upto("<!-- scripts -->")?;
        html.out.write_all(allowed().as_bytes())?;
        html.upto("<!-- title -->")?;
        html.out.write_all(escaped(title).as_bytes())?;
        html.upto("/* style */")?;
        html.out.write_all(STYLE.as_bytes())?;
        html.upto("<!-- data -->")?;
        Ok(html)
    }

    /// Writes the part of the frame before a mark.
    fn upto(&mut self, mark: &str) -> io::Result<()> {
        let (part, rest) = self.rest.split_once(mark).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.out.write_all(part.as_bytes())
    }

    /// Writes data as JSON. A `<` is escaped, so that no text ends the element.
    pub(crate) fn json(&mut self, id: &str, data: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(data)?.replace('<', "\\u003c");
        writeln!(self.out, "<script type=\"application/json\" id=\"{id}\">{text}</script>")
    }

    /// Writes bytes.
    pub(crate) fn bytes(&mut self, id: &str, bytes: &[u8]) -> io::Result<()> {
        writeln!(
            self.out,
            "<script type=\"text/plain\" id=\"{id}\">{}</script>",
            STANDARD.encode(bytes)
        )
    }

    /// Writes a block of fields.
    pub(crate) fn block(&mut self, bytes: &[u8]) -> io::Result<()> {
        writeln!(
            self.out,
            "<script type=\"text/plain\" class=\"block\">{}</script>",
            STANDARD.encode(bytes)
        )
    }

    /// Writes the program. It runs at once, before the data that follow it have arrived.
    pub(crate) fn program(&mut self) -> io::Result<()> {
        writeln!(self.out, "<script type=\"importmap\">{}</script>", import_map())?;
        writeln!(self.out, "<script type=\"module\" async>{START}</script>")
    }

    /// Writes the end of the page.
    pub(crate) fn end(self) -> io::Result<()> {
        self.out.write_all(self.rest.as_bytes())?;
        self.out.flush()
    }
}

/// Escapes a text for HTML. Only the title of the page needs this.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_the_data_or_the_title() {
        let hostile = "</script></title><script>alert(1)</script><!-- & ]]>";
        let mut out = Vec::new();
        let mut html = Html::begin(&mut out, hostile).unwrap();
        html.json("head", &serde_json::json!({ "text": hostile })).unwrap();
        html.end().unwrap();
        let page = String::from_utf8(out).unwrap();
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (1, 1));
        assert_eq!((page.matches("</title").count(), page.matches("<!--").count()), (1, 0));
        let (json, _) = page.split_once("id=\"head\">").unwrap().1.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap()["text"], hostile);
    }

    /// The policy allows the scripts of the page by their hashes, and nothing else. A hash of a
    /// known text shows that the hashes are right.
    #[test]
    fn the_policy_allows_the_scripts_of_the_page_alone() {
        assert_eq!(hash("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
        let mut out = Vec::new();
        let mut html = Html::begin(&mut out, "title").unwrap();
        html.program().unwrap();
        html.end().unwrap();
        let page = String::from_utf8(out).unwrap();
        let policy = page.split_once("script-src ").unwrap().1.split_once(';').unwrap().0;
        let allowed: Vec<&str> = policy.split(' ').collect();
        assert!(allowed.iter().all(|source| source.starts_with("'sha256-")), "{policy}");
        let scripts = page.split("<script").skip(1).map(|script| script.split_once('>').unwrap().1);
        let scripts: Vec<&str> =
            scripts.map(|script| script.split_once("</script>").unwrap().0).collect();
        assert!(
            scripts.iter().all(|script| allowed.contains(&format!("'{}'", hash(script)).as_str()))
        );
        assert_eq!((scripts.len(), allowed.len()), (2, 2 + MODULES.len()));
    }

    /// Each module that another one imports is in the page.
    #[test]
    fn imports_lead_somewhere() {
        for (name, text) in MODULES {
            for import in
                text.lines().filter_map(|line| line.split_once(" from \"")?.1.strip_suffix("\";"))
            {
                assert!(MODULES.iter().any(|(own, _)| *own == import), "{name} imports {import}");
            }
            assert!(text.lines().count() <= 600, "{name} is long");
        }
    }
}
