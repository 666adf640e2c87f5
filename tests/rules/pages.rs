//! The pages for people: every relative link and anchor leads somewhere, the book has every page of `docs/`, no page waits for text, and
//! what the pages about the source name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The pages about the source.
const DESIGN: &str = "docs/design";

/// A page, by its path from the top of the repository.
struct Page {
    path: PathBuf,
    text: String,
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages at the top, and those of `docs/` and `docs/design/`.
fn pages() -> Vec<Page> {
    let names = |folder: &str| {
        let entries = fs::read_dir(top().join(folder)).unwrap().flatten();
        let names = entries.map(|entry| Path::new(folder).join(entry.file_name()));
        names.filter(|path| path.extension().is_some_and(|suffix| suffix == "md")).collect::<BTreeSet<_>>()
    };
    let paths = names("").into_iter().chain(names("docs")).chain(names(DESIGN));
    paths.map(|path| Page { text: fs::read_to_string(top().join(&path)).unwrap(), path }).collect()
}

/// Returns the lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Returns the text without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the targets of a line's links and pictures: `[text](target)`.
fn links(line: &str) -> Vec<String> {
    let line = without_code(line);
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.collect()
}

/// Returns the anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Returns all anchors of a page; the second heading of one name has `-1` after it.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let name = anchor(line.trim_start_matches('#'));
        let before = seen.entry(name.clone()).or_insert(0);
        anchors.insert(if *before == 0 { name } else { format!("{name}-{before}") });
        *before += 1;
    }
    anchors
}

/// Returns the path that a link names, from the top of the repository.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in page.parent().unwrap().join(target).components() {
        if part == Component::ParentDir {
            path.pop();
        } else {
            path.push(part);
        }
    }
    path
}

/// Returns what is wrong with a link of a page, if anything is.
fn fault(page: &Page, target: &str, anchors: &BTreeMap<PathBuf, BTreeSet<String>>) -> Option<String> {
    if target.contains(':') {
        // A URL: no test asks the network.
        return None;
    }
    let (file, fragment) = target.split_once('#').map_or((target, None), |(file, name)| (file, Some(name)));
    let path = if file.is_empty() { page.path.clone() } else { resolved(&page.path, file) };
    if !top().join(&path).exists() {
        return Some("leads nowhere".to_owned());
    }
    if page.path.starts_with("docs") && !path.starts_with("docs") {
        return Some("leaves docs/, and the book has nothing else: name the file without a link".to_owned());
    }
    let fragment = fragment?;
    let known = anchors.get(&path)?;
    (!known.contains(fragment)).then(|| format!("'#{fragment}' is not a heading of {}", path.display()))
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let anchors = pages.iter().map(|page| (page.path.clone(), anchors(&page.text))).collect();
    let mut count = 0;
    let mut wrong = Vec::new();
    for page in &pages {
        for (number, line) in prose(&page.text) {
            for target in links(line) {
                count += 1;
                if let Some(fault) = fault(page, &target, &anchors) {
                    wrong.push(format!("{}:{number}: the link '{target}' {fault}", page.path.display()));
                }
            }
        }
    }
    assert!(count > 50, "{count} links are left");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page() {
    let summary = fs::read_to_string(top().join("docs/SUMMARY.md")).unwrap();
    let listed: Vec<String> = summary.lines().flat_map(links).collect();
    for page in pages().iter().filter(|page| page.path.starts_with("docs")) {
        let name = page.path.strip_prefix("docs").unwrap().to_str().unwrap();
        let times = listed.iter().filter(|target| *target == name).count();
        let wanted = usize::from(name != "SUMMARY.md");
        assert_eq!(times, wanted, "docs/SUMMARY.md lists {name} {times} times: it is to list each page once");
    }
}

/// Returns a line of prose that is a single word in capitals stands for something that was to come.
fn is_placeholder(line: &str) -> bool {
    line.len() > 1 && line.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

#[test]
fn no_page_waits_for_text() {
    for page in pages() {
        for (number, line) in prose(&page.text) {
            assert!(!is_placeholder(line.trim()), "{}:{number}: '{line}'", page.path.display());
        }
    }
}

/// Returns the parts of a line between backticks.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns whether a word is the name of a type: `ArrayMetadata`, and neither `float32` nor `README`.
fn is_type_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric())
        && word.chars().any(|c| c.is_ascii_lowercase())
}

/// Collects the text of all sources.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns what a part between backticks names that does not exist, if it names a file, a folder or a type of the source. A path of
/// `src/lib.rs` begins in `src`.
fn names_nothing(named: &str, page: &Path, sources: &str) -> bool {
    let is_map = page == Path::new("src/lib.rs");
    if is_type_name(named) {
        let kinds = ["struct", "enum", "trait", "type"];
        return !is_map && !kinds.iter().any(|kind| sources.contains(&format!("{kind} {named}")));
    }
    let folders = ["src/", "tests/", "scripts/", "docs/", "systemd/", "packaging/"];
    if folders.iter().any(|folder| named.starts_with(folder)) {
        return !top().join(named).exists();
    }
    is_map && named.contains('/') && !named.contains(' ') && !top().join("src").join(named).exists()
}

#[test]
fn what_the_design_pages_name_exists() {
    let mut text = String::new();
    sources(&top().join("src"), &mut text);
    let mut pages = pages();
    pages.retain(|page| page.path.starts_with(DESIGN) || page.path == Path::new("docs/architecture.md"));
    assert!(pages.len() > 9, "{} pages are left", pages.len());
    let map = fs::read_to_string(top().join("src/lib.rs")).unwrap();
    let map: Vec<&str> = map.lines().filter(|line| line.starts_with("//!")).collect();
    pages.push(Page { path: "src/lib.rs".into(), text: map.join("\n") });
    let mut wrong = Vec::new();
    for page in &pages {
        for (number, line) in prose(&page.text) {
            for named in code(line).filter(|named| names_nothing(named, &page.path, &text)) {
                wrong.push(format!("{}:{number}: '{named}' does not exist", page.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_the_source_are_found() {
    assert_eq!(code("a `b`, `c/d`").collect::<Vec<_>>(), ["b", "c/d"]);
    assert!(is_type_name("ArrayMetadata") && !is_type_name("float32") && !is_type_name("README"));
    let (page, map) = (Path::new("docs/design/read.md"), Path::new("src/lib.rs"));
    assert!(names_nothing("src/gone.rs", page, "") && !names_nothing("src/lib.rs", page, ""));
    assert!(names_nothing("Gone", page, "struct Here") && !names_nothing("Here", page, "struct Here"));
    assert!(names_nothing("array/gone/", map, "") && !names_nothing("gone/", page, ""));
}

#[test]
fn links_and_anchors_are_found() {
    assert_eq!(links("a [b](c.md#d), ![e](f.svg) and `[x](y)`"), ["c.md#d", "f.svg"]);
    assert_eq!(anchor(" Options of `zarrfs mount`"), "options-of-zarrfs-mount");
    assert_eq!(anchor("A user's own service"), "a-users-own-service");
    assert!(is_placeholder("TABLE") && !is_placeholder("A table") && !is_placeholder(""));
    let page = "# A\n```sh\n# no heading\n```\n## A\n";
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a", "a-1"]);
    assert_eq!(resolved(Path::new("docs/a.md"), "../src/lib.rs"), Path::new("src/lib.rs"));
    assert_eq!(resolved(Path::new("README.md"), "docs/a.md"), Path::new("docs/a.md"));
}
