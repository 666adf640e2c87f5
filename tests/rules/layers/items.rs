//! Which file defines what another file names: modules from their `mod` declarations, and names through `use`, also
//! where a module gives a name of another one away (`pub use`). Code for tests does not count.
//!
//! Methods have no paths. A call of a method on another file's type is seen only where that type is named.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::{end_of_item, is_word, members, occurrences, words};

/// A name that a module has from elsewhere.
struct Import {
    path: Vec<String>,
    /// `pub use`: the file need not use the name itself.
    is_reexport: bool,
}

#[derive(Default)]
struct Module {
    /// Relative to `src`.
    file: String,
    children: BTreeSet<String>,
    /// What the file defines.
    items: BTreeSet<String>,
    imports: BTreeMap<String, Import>,
    /// The code without tests, `use` and `mod` declarations.
    body: String,
}

/// The modules of the crate by their paths.
#[derive(Default)]
pub struct Modules {
    modules: BTreeMap<Vec<String>, Module>,
    faults: Vec<String>,
}

/// The names by which one file uses another.
pub type Uses = BTreeMap<(String, String), BTreeSet<String>>;

impl Modules {
    /// Returns the modules below the crate's roots. `sources` has the code of each file, without comments and literals, by its
    /// path relative to `src`.
    pub fn of(sources: &BTreeMap<String, String>) -> Modules {
        let mut all = Modules::default();
        for root in ["main.rs", "lib.rs"].into_iter().filter(|root| sources.contains_key(*root)) {
            all.add(Vec::new(), root, sources);
        }
        all
    }

    /// Returns what makes uses invisible.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    fn add(&mut self, path: Vec<String>, file: &str, sources: &BTreeMap<String, String>) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let code = without_tests(&sources[file]);
        let mut body = code.clone();
        for (start, keyword) in items(&code) {
            let end = end_of_item(&code, start);
            let after = code[start + keyword.len()..end].trim_start();
            let name = first_word(after.trim_start_matches(['!', ' '])).to_owned();
            match keyword {
                "use" => {
                    let is_reexport = is_public(&code[..start]);
                    for (path, name) in imports(&[], after.trim_end_matches(';')) {
                        if name == "*" {
                            self.faults
                                .push(format!("{file}: 'use {}::*' hides what is used", path.join("::")));
                        }
                        module.imports.insert(name, Import { path, is_reexport });
                    }
                    blank(&mut body, start, end);
                }
                "mod" if code[..end].ends_with(';') => {
                    module.children.insert(name);
                    blank(&mut body, start, end);
                }
                _ => {
                    module.items.insert(name);
                }
            }
        }
        module.body = body;
        for child in &module.children {
            let folder = path.join("/");
            let base = if folder.is_empty() { child.clone() } else { format!("{folder}/{child}") };
            let files = [format!("{base}.rs"), format!("{base}/mod.rs")];
            match files.iter().find(|file| sources.contains_key(*file)) {
                Some(file) => self.add([&path[..], std::slice::from_ref(child)].concat(), file, sources),
                None => self.faults.push(format!("{file}: module {child} has no file")),
            }
        }
        let before = self.modules.entry(path).or_default();
        // The library and the program share their root; the library's file stands for it.
        module.children.append(&mut before.children);
        before.file = module.file;
        before.children = module.children;
        before.items.append(&mut module.items);
        before.imports.append(&mut module.imports);
        before.body.push_str(&module.body);
    }

    /// Returns each file, its module, and its code without tests and imports.
    pub fn code(&self) -> impl Iterator<Item = (&str, &[String], &str)> {
        self.modules
            .iter()
            .map(|(path, module)| (module.file.as_str(), path.as_slice(), module.body.as_str()))
    }

    /// Returns which file uses which other file, and by what names.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (path, module) in &self.modules {
            for name in self.names_in(module) {
                if let Some((file, item)) = self.definition(path, &name)
                    && file != module.file
                {
                    uses.entry((module.file.clone(), file)).or_default().insert(item);
                }
            }
        }
        uses
    }

    /// Returns the paths, seen from the module, that its file uses.
    fn names_in(&self, module: &Module) -> Vec<Vec<String>> {
        let imported = module.imports.values().filter(|import| !import.is_reexport);
        let mut names: Vec<Vec<String>> = imported.map(|import| import.path.clone()).collect();
        for (start, word) in words(&module.body) {
            let before = module.body[..start].trim_end();
            let is_method = before.ends_with('.') && !before.ends_with("..");
            if is_method || before.ends_with("::") || before.ends_with('\'') || is_definition(before) {
                continue;
            }
            let after = module.body[start + word.len()..].trim_start();
            if matches!(word, "crate" | "zarrfs" | "self" | "super") {
                let tree = &module.body[start..];
                if after.starts_with("::") {
                    names.extend(imports(&[], tree).into_iter().map(|(path, _)| path));
                }
                continue;
            }
            // A variable may have the name of a function or a module.
            let is_type = word.starts_with(|char: char| char.is_uppercase());
            let is_used = is_type || after.starts_with(['(', '!']) || after.starts_with("::");
            let is_known = module.imports.contains_key(word) || module.children.contains(word);
            if is_used && is_known && !module.items.contains(word) {
                names.push(path_at(&module.body[start..]));
            }
        }
        names
    }

    /// Returns the file and the item that `path`, seen from the module `from`, names; `None` outside of the crate, and where it is
    /// only a module.
    pub fn definition(&self, from: &[String], path: &[String]) -> Option<(String, String)> {
        self.definition_at(from, path, 0)
    }

    fn definition_at(&self, from: &[String], path: &[String], depth: usize) -> Option<(String, String)> {
        let mut at = from.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" | "zarrfs" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            _ => return self.definition_below(&at, rest, depth, true),
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|name| name == "super") {
            at.pop();
            rest = &rest[1..];
        }
        self.definition_below(&at, rest, depth, false)
    }

    /// Finds the definition that a path names. `may_be_outer`: the first name may be that of another crate.
    fn definition_below(
        &self,
        at: &[String],
        path: &[String],
        depth: usize,
        may_be_outer: bool,
    ) -> Option<(String, String)> {
        let module = self.modules.get(at)?;
        let name = path.first()?;
        if module.children.contains(name) && path.len() > 1 {
            return self.definition_below(
                &[at, std::slice::from_ref(name)].concat(),
                &path[1..],
                depth,
                false,
            );
        }
        if module.items.contains(name) {
            return Some((module.file.clone(), name.clone()));
        }
        // 'use log::log' names another crate, not itself, without end.
        if let Some(import) = module.imports.get(name).filter(|_| depth < 16) {
            return self.definition_at(at, &[&import.path[..], &path[1..]].concat(), depth + 1);
        }
        // What a macro makes is its file's.
        let is_unknown = !may_be_outer && !at.is_empty() && !module.children.contains(name);
        is_unknown.then(|| (module.file.clone(), name.clone()))
    }
}

/// Returns the words that begin items of the file, not those inside of blocks; `const fn` begins with its `fn`.
fn items(code: &str) -> Vec<(usize, &str)> {
    const KEYWORDS: [&str; 11] =
        ["use", "mod", "fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];
    let mut found = Vec::new();
    let mut end = 0;
    for (start, word) in words(code).filter(|(_, word)| KEYWORDS.contains(word) || *word == "impl") {
        let after = code[start + word.len()..].trim_start();
        if start < end || (word == "const" && after.starts_with("fn")) {
            continue;
        }
        end = end_of_item(code, start);
        if word != "impl" {
            found.push((start, word));
        }
    }
    found
}

fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    before.ends_with("pub")
        || (before.ends_with(')') && before.rfind('(').is_some_and(|at| before[..at].ends_with("pub")))
}

/// Returns whether the next word is the name of something new.
fn is_definition(before: &str) -> bool {
    before.ends_with(" fn") || before.ends_with("\nfn")
}

/// Returns the paths of a `use` tree below `base`, and the names that they get.
fn imports(base: &[String], tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return members(group).into_iter().flat_map(|member| imports(base, member)).collect();
    }
    if tree.starts_with('*') {
        return vec![(base.to_vec(), "*".to_owned())];
    }
    let name = first_word(tree);
    let after = tree[name.len()..].trim_start();
    let mut path = base.to_vec();
    // 'a::{self}' is 'a'.
    if name != "self" || base.is_empty() {
        path.push(name.to_owned());
    }
    if let Some(rest) = after.strip_prefix("::").filter(|_| !name.is_empty()) {
        return imports(&path, rest);
    }
    let renamed = after.strip_prefix("as ").map(|rest| first_word(rest.trim_start()).to_owned());
    let last = path.last().cloned().unwrap_or_default();
    vec![(path, renamed.unwrap_or(last))]
}

fn first_word(code: &str) -> &str {
    &code[..code.find(|char| !is_word(char)).unwrap_or(code.len())]
}

/// Returns the path that `code` begins with.
fn path_at(code: &str) -> Vec<String> {
    let name = first_word(code);
    let after = code[name.len()..].trim_start().strip_prefix("::").map(str::trim_start);
    let rest = after.filter(|after| after.starts_with(is_word)).map(path_at);
    [vec![name.to_owned()], rest.unwrap_or_default()].concat()
}

/// Blanks items that are there only for tests.
fn without_tests(code: &str) -> String {
    let mut code = code.to_owned();
    let attributes: Vec<usize> = occurrences(&code, "cfg").collect();
    for start in attributes {
        let condition = code[start + "cfg".len()..].trim_start();
        let is_test = ["(test)", "(all(test"].iter().any(|test| condition.starts_with(test));
        if is_test && code[..start].ends_with("#[") {
            let end = end_of_item(&code, start - "#[".len());
            blank(&mut code, start - "#[".len(), end);
        }
    }
    code
}

fn blank(code: &mut String, start: usize, end: usize) {
    let blank: String = code[start..end].chars().map(|char| if char == '\n' { '\n' } else { ' ' }).collect();
    code.replace_range(start..end, &blank);
}

#[test]
fn uses_are_resolved_to_files() {
    let uses = |files: &[(&str, &str)]| -> Vec<String> {
        let sources = files.iter().map(|(file, code)| ((*file).to_owned(), (*code).to_owned())).collect();
        let shown = Modules::of(&sources).uses().into_iter();
        shown.map(|((from, to), items)| format!("{from} {to} {}", Vec::from_iter(items).join(" "))).collect()
    };
    let tree = |code| {
        uses(&[
            ("lib.rs", "mod a; pub mod b;"),
            ("a.rs", code),
            (
                "b/mod.rs",
                "mod c; pub(crate) mod d; pub use c::C; pub use c::{Other as Renamed, open}; pub const B: u8 = 1;",
            ),
            ("b/c.rs", "pub struct C; pub struct Other; pub fn open() { let x = 1; }"),
            ("b/d.rs", "macro_rules! make { () => {} } make!(); #[cfg(test)] mod tests { use crate::a::A; }"),
        ])
    };
    for (code, found) in [
        ("use crate::b::C;", vec!["a.rs b/c.rs C"]),
        ("use crate::b::{self, B}; fn f() { b::open() }", vec!["a.rs b/c.rs open", "a.rs b/mod.rs B"]),
        (
            "use super::b::Renamed as Again; const A: u8 = crate::b::d::made();",
            vec!["a.rs b/c.rs Other", "a.rs b/d.rs made"],
        ),
        ("fn f(open: u8) { zarrfs::b::c::C::new(self.b.open(open)) }", vec!["a.rs b/c.rs C"]),
        // A module that only gives a name away uses nothing.
        (
            "pub use crate::b::C; pub use crate::b::B; fn f(C: u8) { B }",
            vec!["a.rs b/c.rs C", "a.rs b/mod.rs B"],
        ),
        (
            "pub(crate) use crate::b::C; #[cfg(test)] fn f() -> C {} struct S { #[cfg(test)] c: C, d: u8 }",
            vec![],
        ),
        ("use crate::b; use log::log; use std::fmt; fn f() { fmt::b::C }", vec![]),
    ] {
        assert_eq!(tree(code), found, "{code}");
    }
}
