//! Files of `src` that use each other in a circle, and rooms (folders with the same parent) that do.
//!
//! Two files in a circle can only be read, tested and changed together. The lists here have the circles that are left:
//! a new one is a fault, and one that has gone leaves its list, so that their number only falls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::items::{Modules, Uses};

/// The circles of files, by their paths in `src`. The one of codecs that have a chain of codecs of their own stays: the registry builds
/// both.
const FILES: &[&[&str]] = &[&[
    "codec/array_to_bytes/n5_default.rs",
    "codec/array_to_bytes/optional.rs",
    "codec/array_to_bytes/sharding/mod.rs",
    "codec/bytes_to_bytes/conditional.rs",
    "codec/pipeline.rs",
    "codec/registry.rs",
]];

/// The circles of rooms, by their paths in `src`.
const ROOMS: &[&[&str]] = &[];

/// One circle: its members in order.
type Circle = Vec<String>;

/// Returns the circles that are in the code or in the lists, not in both.
///
/// Prints all circles with the uses that make them: `cargo test --test rules layers -- --nocapture`.
pub fn faults(modules: &Modules) -> Vec<String> {
    let uses = modules.uses();
    let mut faults = modules.faults().to_vec();
    for (what, circles, listed) in
        [("files", circles(uses.keys()), FILES), ("rooms", circles_of_rooms(&uses), ROOMS)]
    {
        println!("{} circles of {what}", circles.len());
        for circle in &circles {
            let shown =
                format!("circle of {} {what}: &{circle:?},\n{}", circle.len(), uses_within(circle, &uses));
            println!("{shown}");
            if !listed.iter().any(|listed| listed == circle) {
                faults.push(format!("not in the list of tests/rules/layers/circles.rs: {shown}"));
            }
        }
        let gone = listed.iter().filter(|listed| !circles.iter().any(|circle| circle == *listed));
        faults.extend(gone.map(|circle| {
            format!("a circle of {what} has gone or changed; mend tests/rules/layers/circles.rs: {circle:?}")
        }));
    }
    faults
}

/// Returns the uses between the members of a circle, a line each, and what is used.
fn uses_within(circle: &Circle, uses: &Uses) -> String {
    let member =
        |file: &str| circle.iter().find(|member| *member == file || file.starts_with(&format!("{member}/")));
    let mut text = String::new();
    for ((from, to), names) in uses {
        if let (Some(own), Some(other)) = (member(from), member(to))
            && own != other
        {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            writeln!(text, "    {from} uses {to}: {}", names.join(", ")).unwrap();
        }
    }
    text
}

/// Returns the groups of members that all reach each other.
fn circles<'a>(edges: impl Iterator<Item = &'a (String, String)>) -> Vec<Circle> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges {
        next.entry(from).or_default().push(to);
    }
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for from in next.keys() {
        let mut todo = vec![*from];
        let found = reached.entry(from).or_default();
        while let Some(at) = todo.pop() {
            todo.extend(next.get(at).into_iter().flatten().filter(|to| found.insert(**to)));
        }
    }
    let mut circles = Vec::new();
    let mut placed = BTreeSet::new();
    for (from, all) in reached.iter().filter(|(from, all)| all.contains(*from)) {
        if placed.contains(from) {
            continue;
        }
        let members = all.iter().filter(|to| reached.get(*to).is_some_and(|back| back.contains(from)));
        let circle: Circle = members.map(|member| (*member).to_owned()).collect();
        placed.extend(all.iter().copied().filter(|member| circle.iter().any(|other| other == member)));
        circles.push(circle);
    }
    circles
}

fn circles_of_rooms(uses: &Uses) -> Vec<Circle> {
    let edges: BTreeSet<(String, String)> = uses.keys().filter_map(|(from, to)| rooms(from, to)).collect();
    circles(edges.iter())
}

/// Returns the two rooms, next to each other, that a use connects.
fn rooms(from: &str, to: &str) -> Option<(String, String)> {
    let (own, other): (Vec<&str>, Vec<&str>) = (from.split('/').collect(), to.split('/').collect());
    let common = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
    // The last part is the file's own name. The root is in order by its layers.
    let is_in_room = |path: &[&str]| path.len() > common + 1 && common > 0;
    (is_in_room(&own) && is_in_room(&other)).then(|| (own[..=common].join("/"), other[..=common].join("/")))
}

#[test]
fn circles_are_found() {
    let found = |edges: &[(&str, &str)]| {
        let edges: Vec<(String, String)> =
            edges.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let uses: Uses = edges.into_iter().map(|edge| (edge, BTreeSet::new())).collect();
        (circles(uses.keys()), circles_of_rooms(&uses))
    };
    let none: Vec<Circle> = Vec::new();
    assert_eq!(
        found(&[("a/x.rs", "a/y.rs"), ("a/y.rs", "a/z.rs"), ("a/x.rs", "a/z.rs")]),
        (none.clone(), none.clone())
    );
    let (files, rooms) = found(&[
        ("a/x.rs", "a/y.rs"),
        ("a/y.rs", "a/z.rs"),
        ("a/z.rs", "a/x.rs"),
        ("a/z.rs", "b/p.rs"),
        ("b/p.rs", "b/q.rs"),
        ("b/q.rs", "b/p.rs"),
    ]);
    assert_eq!(files, [vec!["a/x.rs", "a/y.rs", "a/z.rs"], vec!["b/p.rs", "b/q.rs"]]);
    assert_eq!(rooms, none);
    let rooms_of = |edges| found(edges).1;
    assert_eq!(rooms_of(&[("l/a/x.rs", "l/b/y.rs"), ("l/b/z.rs", "l/a/w/v.rs")]), [["l/a", "l/b"]]);
    // A folder's own file is not in it, and layers are in order by another rule.
    assert_eq!(rooms_of(&[("l/a/x.rs", "l/b/y.rs"), ("l/b/z.rs", "l/a.rs")]), none);
    assert_eq!(rooms_of(&[("a/x.rs", "b/y.rs"), ("b/z.rs", "a/w.rs")]), none);
}
