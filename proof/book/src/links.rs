//! Checks that links within the repository lead to a file, and to a heading of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::page::{Link, Page};

/// Fails if a link leads nowhere. Returns how many links were checked.
pub(super) fn check(pages: &[Page]) -> Result<usize> {
    let mut headings: HashMap<PathBuf, Vec<String>> = HashMap::new();
    for page in pages {
        let slugs = page.headings.iter().map(|heading| slug(heading)).collect();
        headings.insert(page.path.canonicalize()?, slugs);
    }
    let mut count = 0;
    let mut wrong = Vec::new();
    for page in pages {
        for link in page
            .links
            .iter()
            .filter(|link| !link.to.contains("://") && !link.to.starts_with("mailto:"))
        {
            count += 1;
            if let Err(why) = check_one(&page.path, link, &headings) {
                wrong.push(format!("{}:{}: {}: {why}", page.path.display(), link.line, link.to));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("links that lead nowhere:\n{}", wrong.join("\n"));
    }
    Ok(count)
}

fn check_one(page: &Path, link: &Link, headings: &HashMap<PathBuf, Vec<String>>) -> Result<()> {
    let (file, heading) =
        link.to.split_once('#').map_or((link.to.as_str(), None), |(file, to)| (file, Some(to)));
    let target =
        if file.is_empty() { page.to_path_buf() } else { page.parent().unwrap_or(page).join(file) };
    let Ok(target) = target.canonicalize() else { bail!("no such file") };
    let Some(heading) = heading else { return Ok(()) };
    match headings.get(&target) {
        Some(slugs) if slugs.iter().any(|slug| slug == heading) => Ok(()),
        Some(_) => bail!("no such heading"),
        None => bail!("a heading of a file that is not checked"),
    }
}

/// Returns the name by which links refer to a heading.
fn slug(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn headings_are_named_as_in_links() {
        assert_eq!(slug("In the crash kernel: kdump"), "in-the-crash-kernel-kdump");
        assert_eq!(slug("What `record` costs"), "what-record-costs");
    }
}
