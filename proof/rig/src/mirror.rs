//! The host's package mirror, as its own apt sources name it, for a suite that it does not use.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The facts of `/etc/os-release`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// `debian`, `ubuntu`, …
    pub id: String,
    /// `bookworm`, `noble`, …
    pub codename: String,
}

impl System {
    /// Reads `/etc/os-release`.
    pub fn of_host() -> Result<Self> {
        let text = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches('"').to_string()
        };
        Self { id: field("ID"), codename: field("VERSION_CODENAME") }
    }
}

/// One source of packages: where it is and whose signature it must bear.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    /// Places, blank-separated.
    uris: String,
    suites: String,
    components: String,
    /// `Signed-By`, `Trusted`, and their values, continuation lines included.
    options: Vec<(String, String)>,
}

impl Mirror {
    /// The mirror from which the host has its main suite.
    pub fn of_host(system: &System) -> Result<Self> {
        let mut mirrors = Vec::new();
        let etc = Path::new("/etc/apt");
        if let Ok(text) = std::fs::read_to_string(etc.join("sources.list")) {
            mirrors.extend(parse_list(&text));
        }
        let parts = std::fs::read_dir(etc.join("sources.list.d")).into_iter().flatten().flatten();
        let mut paths: Vec<_> = parts.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            match path.extension().and_then(|e| e.to_str()) {
                Some("list") => mirrors.extend(parse_list(&text)),
                Some("sources") => mirrors.extend(parse_deb822(&text)),
                _ => {}
            }
        }
        match choose(mirrors, system) {
            Some(mirror) => Ok(mirror),
            None => bail!("/etc/apt names no mirror of {} {} main", system.id, system.codename),
        }
    }

    /// Debian's own mirror, with the keys that the host has of it.
    pub fn of_debian() -> Result<Self> {
        let keys = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
        if !keys.exists() {
            bail!(
                "{}: not there; it comes with the package debian-archive-keyring",
                keys.display()
            );
        }
        Ok(Self {
            uris: "http://deb.debian.org/debian".into(),
            options: vec![("Signed-By".into(), keys.display().to_string())],
            ..Self::default()
        })
    }

    /// An apt source (deb822) for another suite of the same mirror. Updates for security are in an
    /// archive beside it.
    pub fn source(&self, suite: &str, components: &str) -> String {
        let beside = if suite.ends_with("-security") { "-security" } else { "" };
        let uris = self
            .uris
            .split_whitespace()
            .map(|uri| format!("{}{beside}", uri.trim_end_matches('/')));
        let uris = uris.collect::<Vec<_>>().join(" ");
        let mut text =
            format!("Types: deb\nURIs: {uris}\nSuites: {suite}\nComponents: {components}\n");
        for (name, value) in &self.options {
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }
}

fn choose(mirrors: Vec<Mirror>, system: &System) -> Option<Mirror> {
    let has = |list: &str, word: &str| list.split_whitespace().any(|w| w == word);
    let is_main = |m: &Mirror| {
        let suite = has(&m.suites, &system.codename)
            || ["stable", "testing", "unstable"].iter().any(|s| has(&m.suites, s));
        suite && has(&m.components, "main") && !m.uris.starts_with("cdrom:") && !m.uris.is_empty()
    };
    // A vendor may call its suite as the system's, or `stable`: the system's own has its name in
    // the path.
    let own = |m: &&Mirror| m.uris.contains(&system.id);
    let mirrors: Vec<Mirror> = mirrors.into_iter().filter(is_main).collect();
    mirrors.iter().find(own).or(mirrors.first()).cloned()
}

/// The one-line form: `deb [signed-by=… trusted=…] URI SUITE COMPONENT…`.
fn parse_list(text: &str) -> Vec<Mirror> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mirror> {
    let line = line.split('#').next()?.trim();
    let mut rest = line.strip_prefix("deb")?;
    if !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let mut options = Vec::new();
    if let Some(bracket) = rest.trim_start().strip_prefix('[') {
        let (inside, after) = bracket.split_once(']')?;
        for (name, value) in inside.split_whitespace().filter_map(|o| o.split_once('=')) {
            match name {
                "signed-by" => options.push(("Signed-By".into(), value.replace(',', " "))),
                "trusted" => options.push(("Trusted".into(), value.into())),
                _ => {}
            }
        }
        rest = after;
    }
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let components = words.collect::<Vec<_>>().join(" ");
    Some(Mirror { uris: uri.into(), suites: suite.into(), components, options })
}

/// The deb822 form: stanzas of `Field: value`, with continuation lines.
fn parse_deb822(text: &str) -> Vec<Mirror> {
    let mut stanzas: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let Some(stanza) = stanzas.last_mut() else { break };
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
        } else if line.starts_with(char::is_whitespace) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.to_ascii_lowercase(), value.trim().into()));
        }
    }
    stanzas.iter().filter_map(|stanza| from_stanza(stanza)).collect()
}

fn from_stanza(stanza: &[(String, String)]) -> Option<Mirror> {
    let field = |name: &str| stanza.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    if !field("types")?.split_whitespace().any(|t| t == "deb")
        || field("enabled").is_some_and(|e| e == "no")
    {
        return None;
    }
    let option = |name: &str| Some((name.to_string(), field(&name.to_ascii_lowercase())?));
    Some(Mirror {
        uris: field("uris")?,
        suites: field("suites")?,
        components: field("components").unwrap_or_default(),
        options: ["Signed-By", "Trusted"].into_iter().filter_map(option).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> System {
        System::parse("PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n")
    }

    #[test]
    fn the_system_of_os_release() {
        assert_eq!(debian(), System { id: "debian".into(), codename: "bookworm".into() });
        assert_eq!(System::parse("ID=\"ubuntu\"\nVERSION_CODENAME=\"noble\"\n").id, "ubuntu");
    }

    #[test]
    fn deb822_with_vendors_beside() {
        let text = "Types: deb\nURIs: http://vendor.example/\nSuites: bookworm\nComponents: main\n\n# ours\n\
                    Types: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main contrib\nSigned-By:\n -----BEGIN\n .\n abc\n";
        let mirror = choose(parse_deb822(text), &debian()).unwrap();
        assert_eq!(
            mirror.source("trixie", "main"),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n\
             Signed-By: \n -----BEGIN\n .\n abc\n"
        );
    }

    #[test]
    fn one_line_sources_with_options() {
        let text = "# deb http://old.example/debian bookworm main\ndeb-src http://mirror.example/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/a.gpg] http://mirror.example/debian bookworm main # note\n\
                    deb http://mirror.example/debian-security bookworm-security main\n";
        let mirror = choose(parse_list(text), &debian()).unwrap();
        assert_eq!(
            mirror.source("trixie", "main"),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\nSigned-By: /a.gpg\n"
        );
        assert!(
            mirror
                .source("bullseye-security", "main")
                .contains("URIs: http://mirror.example/debian-security\n")
        );
    }

    #[test]
    fn what_is_no_mirror_of_the_system() {
        let none = [
            "deb cdrom:[disk]/ bookworm main\n",
            "deb http://security.example/debian bookworm-security main\n",
            "deb http://mirror.example/debian bookworm contrib\n",
            "",
        ];
        for text in none {
            assert_eq!(choose(parse_list(text), &debian()), None, "{text:?}");
        }
        let disabled = "Types: deb\nEnabled: no\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n";
        assert_eq!(choose(parse_deb822(disabled), &debian()), None);
    }
}
