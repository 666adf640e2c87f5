//! The types with the most methods: a report, not a rule.

use std::collections::{BTreeMap, BTreeSet};

use super::items::Modules;
use super::rust::{end_of_block, is_word, occurrences};

/// How many of the largest types are shown.
const SHOWN: usize = 5;

/// Returns a line for each of the types that have the most methods of their own; those of traits do not count.
pub fn largest(modules: &Modules) -> Vec<String> {
    let mut types: BTreeMap<(String, String), (usize, BTreeSet<&str>)> = BTreeMap::new();
    for (file, path, code) in modules.code() {
        for (name, methods) in inherent_methods(code) {
            let Some(definition) = modules.definition(path, &[name.to_owned()]) else { continue };
            let (count, files) = types.entry(definition).or_default();
            *count += methods;
            files.insert(file);
        }
    }
    let mut types: Vec<_> = types.into_iter().collect();
    types.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let shown = types.iter().take(SHOWN).map(|((file, name), (count, files))| {
        format!("src/{file}: {name} has {count} methods in {} files", files.len())
    });
    shown.collect()
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
