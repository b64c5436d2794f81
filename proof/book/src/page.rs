//! Reads a page of Markdown: its code blocks with the comments that say how they are tested, and its
//! links.
//!
//! A comment before a code block, invisible to readers, has one of these forms:
//!
//! | comment | meaning |
//! | --- | --- |
//! | `<!-- book: setup` and lines of a script | these lines run at this place of the page |
//! | `<!-- book: not run, REASON -->` | the next block is not run |
//! | `<!-- book: needs NAME, ... -->` | the next block runs only where there is this: see `needs.rs` |
//! | `<!-- book: like -->` | the shown output is that of one run: see `compare.rs` |
//! | `<!-- book: file PATH as NAME -->` | the next block is a part of this file of the repository, which is compiled; it is copied to NAME (`as NAME` may be missing) |

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page and what of it can be checked.
pub(super) struct Page {
    pub(super) path: PathBuf,
    pub(super) blocks: Vec<Block>,
    /// Where its links lead.
    pub(super) links: Vec<String>,
}

/// A code block, or the script of a comment.
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) needs: Vec<String>,
    /// The shown output is that of one run.
    pub(super) is_like: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The script of a comment.
    Setup,
    /// Commands behind `$ `, each with the output that is shown.
    Console,
    /// A script.
    Script,
    /// A part of a file of the repository, and the name that it has beside the page's commands.
    Program { file: PathBuf, name: Option<String> },
    /// Commands that are not run, and the reason.
    NotRun(String),
    /// Neither commands nor a program.
    Shown,
    /// Another document that the page includes.
    Included(PathBuf),
}

/// A command of a block, and the output that is shown; none if only its exit status counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Option<String>,
}

/// The directive of a comment for the next block.
#[derive(Default)]
struct Directive {
    not_run: Option<String>,
    needs: Vec<String>,
    is_like: bool,
    file: Option<(PathBuf, Option<String>)>,
}

impl Page {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let mut page = Self { path: path.to_path_buf(), blocks: Vec::new(), links: Vec::new() };
        let line_of = |range: &Range<usize>| 1 + text[..range.start].matches('\n').count();
        let mut directive = Directive::default();
        let mut html = String::new();
        let mut code: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = line_of(&range);
            let at = || format!("{}:{line}", path.display());
            match event {
                Event::Start(Tag::HtmlBlock) => html.clear(),
                Event::Html(part) => html.push_str(&part),
                Event::End(TagEnd::HtmlBlock) => {
                    for comment in html.split("<!-- book: ").skip(1) {
                        let words = comment.split("-->").next().unwrap_or_default();
                        page.blocks.extend(directive.add(words, line).with_context(at)?);
                    }
                }
                Event::Start(Tag::CodeBlock(_)) => code = Some(String::new()),
                Event::Text(part) => {
                    if let Some(into) = code.as_mut() {
                        into.push_str(&part);
                    }
                    if let Some(file) =
                        part.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"))
                    {
                        let file = path.parent().unwrap_or(path).join(file);
                        page.blocks.push(Block::plain(line, Kind::Included(file), ""));
                    }
                }
                Event::End(TagEnd::CodeBlock) => {
                    let first = text[range].lines().next().unwrap_or_default();
                    let language = first.trim_start().strip_prefix("```").with_context(|| {
                        format!("{}: an indented block: begin it with ``` and a language", at())
                    })?;
                    let Directive { not_run, needs, is_like, file } =
                        std::mem::take(&mut directive);
                    let kind = kind(language.trim(), not_run, file).with_context(at)?;
                    let text = code.take().unwrap_or_default();
                    page.blocks.push(Block { line, kind, text, needs, is_like });
                }
                Event::Start(Tag::Link { dest_url, .. }) => page.links.push(dest_url.to_string()),
                _ => {}
            }
        }
        Ok(page)
    }
}

impl Directive {
    /// Takes the words of a comment. Returns a block if the comment is a script.
    fn add(&mut self, words: &str, line: usize) -> Result<Option<Block>> {
        let words = words.trim();
        if let Some(script) = words.strip_prefix("setup\n") {
            return Ok(Some(Block::plain(line, Kind::Setup, script)));
        }
        if let Some(reason) = words.strip_prefix("not run, ") {
            self.not_run = Some(reason.to_owned());
        } else if words == "like" {
            self.is_like = true;
        } else if let Some(names) = words.strip_prefix("needs ") {
            self.needs = names.split(", ").map(str::to_owned).collect();
        } else if let Some(file) = words.strip_prefix("file ") {
            let (file, name) = file
                .split_once(" as ")
                .map_or((file, None), |(file, name)| (file, Some(name.to_owned())));
            self.file = Some((PathBuf::from(file), name));
        } else {
            bail!("`{words}`: expected setup, not run, needs, like or file");
        }
        Ok(None)
    }
}

fn kind(
    language: &str,
    not_run: Option<String>,
    file: Option<(PathBuf, Option<String>)>,
) -> Result<Kind> {
    if let Some(reason) = not_run {
        return Ok(Kind::NotRun(reason));
    }
    Ok(match (language, file) {
        ("console", None) => Kind::Console,
        ("sh", None) => Kind::Script,
        ("rust" | "c", Some((file, name))) => Kind::Program { file, name },
        ("rust" | "c", None) => {
            bail!("a program without `<!-- book: file PATH -->`: nothing compiles it")
        }
        ("text" | "json" | "toml" | "yaml" | "sql" | "python", None) => Kind::Shown,
        _ => bail!(
            "a block of `{language}`: expected console, sh, rust, c, text, json, toml, yaml, sql or python"
        ),
    })
}

impl Block {
    fn plain(line: usize, kind: Kind, text: &str) -> Self {
        Self { line, kind, text: text.to_owned(), needs: Vec::new(), is_like: false }
    }

    /// Returns the commands of a console block.
    pub(super) fn commands(&self) -> Result<Vec<Shown>> {
        let mut commands: Vec<Shown> = Vec::new();
        for (number, text) in self.text.lines().enumerate() {
            let line = self.line + 1 + number;
            if let Some(command) = text.strip_prefix("$ ") {
                commands.push(Shown { line, command: command.to_owned(), output: None });
                continue;
            }
            let last = commands.last_mut();
            let last = last.with_context(|| {
                format!("line {line}: a console block begins with `$ ` and a command")
            })?;
            match text.strip_prefix("> ").filter(|_| last.output.is_none()) {
                Some(more) => last.command.extend(["\n", more]),
                None => last.output.get_or_insert_default().extend([text, "\n"]),
            }
        }
        ensure!(!commands.is_empty(), "line {}: a console block without a command", self.line);
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Page> {
        Page::parse(Path::new("page.md"), text)
    }

    #[test]
    fn blocks_have_what_their_comments_say() {
        let page = parse(
            "# A `b` c\n<!-- book: setup\nx &\n-->\n```console\n$ a\n> b\nout\n$ c\n```\n<!-- book: not run, why -->\n\
             ```sh\nrm\n```\n<!-- book: file a.rs as b.rs -->\n```rust\nfn\n```\n[x](y.md#z)\n",
        )
        .unwrap();
        let kinds: Vec<&Kind> = page.blocks.iter().map(|block| &block.kind).collect();
        let program = Kind::Program { file: "a.rs".into(), name: Some("b.rs".into()) };
        assert_eq!(kinds, [&Kind::Setup, &Kind::Console, &Kind::NotRun("why".into()), &program]);
        let shown = page.blocks[1].commands().unwrap();
        assert_eq!(
            shown[0],
            Shown { line: 6, command: "a\nb".into(), output: Some("out\n".into()) }
        );
        assert_eq!(shown[1], Shown { line: 9, command: "c".into(), output: None });
        assert_eq!(page.links, ["y.md#z"]);
    }

    #[test]
    fn what_could_not_be_checked_is_refused() {
        for text in
            ["```rust\nfn\n```\n", "```\nx\n```\n", "    indented\n", "<!-- book: nothing -->\n"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("```console\nno command\n```\n").unwrap().blocks[0].commands().is_err());
    }
}
