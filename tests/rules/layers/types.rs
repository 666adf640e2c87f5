//! The methods of types: none has more than [`MOST_METHODS`], and the types with the most are reported.

use std::collections::{BTreeMap, BTreeSet};

use super::items::Modules;
use super::rust::{end_of_block, is_word, occurrences};

/// A type with more methods of its own is two types: another one owns a part of its state, and the methods that only need that part.
const MOST_METHODS: usize = 40;

/// How many of the largest types are shown.
const SHOWN: usize = 5;

/// A type of `src`, and its methods; those of traits do not count.
pub struct CountedType<'a> {
    file: String,
    name: String,
    methods: usize,
    files: BTreeSet<&'a str>,
}

/// Returns all types, those with the most methods first.
pub fn counted(modules: &Modules) -> Vec<CountedType<'_>> {
    let mut types: BTreeMap<(String, String), (usize, BTreeSet<&str>)> = BTreeMap::new();
    for (file, path, code) in modules.code() {
        for (name, methods) in inherent_methods(code) {
            let Some(definition) = modules.definition(path, &[name.to_owned()]) else { continue };
            let (count, files) = types.entry(definition).or_default();
            *count += methods;
            files.insert(file);
        }
    }
    let mut types: Vec<_> = types
        .into_iter()
        .map(|((file, name), (methods, files))| CountedType { file, name, methods, files })
        .collect();
    types.sort_by_key(|counted| std::cmp::Reverse(counted.methods));
    types
}

/// Returns a line for each of the largest types.
pub fn largest<'a>(types: &'a [CountedType<'_>]) -> impl Iterator<Item = String> + 'a {
    types.iter().take(SHOWN).map(|CountedType { file, name, methods, files }| {
        format!("src/{file}: {name} has {methods} methods in {} files", files.len())
    })
}

/// Returns a fault for each type with too many methods.
pub fn faults<'a>(types: &'a [CountedType<'_>]) -> impl Iterator<Item = String> + 'a {
    types.iter().filter(|counted| counted.methods > MOST_METHODS).map(|CountedType { file, name, methods, .. }| {
        format!("src/{file}: {name} has {methods} methods, at most {MOST_METHODS}: move those of one concept, with its state, to another type")
    })
}

/// Returns the types that have `impl` blocks without a trait here, and how many functions are in each.
fn inherent_methods(code: &str) -> Vec<(&str, usize)> {
    let blocks = occurrences(code, "impl").filter(|start| code[..*start].ends_with('\n') || *start == 0);
    let counted = blocks.filter_map(|start| {
        let end = end_of_block(code, start)?;
        let head = code[start + "impl".len()..end].split('{').next()?;
        let name_at = head.len() - without_generics(head).len();
        let name =
            &head[name_at..][..head[name_at..].find(|char| !is_word(char)).unwrap_or(head.len() - name_at)];
        let is_of_trait = occurrences(head, "for").any(|at| !head[at + "for".len()..].starts_with('<'));
        (!is_of_trait && !name.is_empty()).then(|| (name, occurrences(&code[start..end], "fn").count()))
    });
    counted.collect()
}

/// Returns `<'a, T> Name<T>` from its name on.
fn without_generics(head: &str) -> &str {
    let head = head.trim_start();
    if !head.starts_with('<') {
        return head;
    }
    let mut depth = 0_usize;
    let end = head.char_indices().find(|(_, char)| {
        match char {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or("", |(at, _)| head[at + 1..].trim_start())
}

#[test]
fn methods_are_counted() {
    let code = "impl A { fn f() {} }\nimpl<'a, T: Into<u8>> B<T> { fn f() {}\n fn g() {} }\nimpl Drop for A { fn drop() {} }\n";
    assert_eq!(inherent_methods(code), [("A", 1), ("B", 2)]);
}
