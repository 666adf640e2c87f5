//! A few lines of code per language that read an array's file: the sidecar's `snippets`.
//!
//! Users paste them without knowing Zarr. Each leaves the array in `x`, indexed as in Zarr (in IDL
//! and Fortran with the axes reversed, as is usual there); `matlab_mapped` in `m.Data.x`, which reads what an index selects. They describe the bytes as served. Every file name
//! is quoted for its language. Where a language cannot read the array, the snippet says so in a comment, or
//! is left out. One file per language; no I/O.

mod c;
mod fortran;
mod idl;
mod julia;
mod matlab;
mod numpy;
mod r;
mod subject;

use serde_json::{Map, Value};

use subject::SnippetElement;
pub use subject::SnippetSubject;

/// Writes the snippet of one language; `None` where that language cannot read such elements.
type WriteSnippet = fn(&SnippetSubject<'_>, SnippetElement) -> Option<String>;

/// Returns all snippets of an array.
pub fn all(subject: &SnippetSubject<'_>) -> Map<String, Value> {
    let languages: [(&str, WriteSnippet); 8] = [
        ("numpy", numpy::snippet),
        ("matlab", matlab::snippet),
        ("matlab_mapped", matlab::mapped),
        ("r", r::snippet),
        ("julia", julia::snippet),
        ("idl", idl::snippet),
        ("fortran", fortran::snippet),
        ("c", c::snippet),
    ];
    let Some(element) = subject.element() else { return Map::new() };
    let snippet = |(name, write): (&str, WriteSnippet)| {
        Some((name.to_owned(), Value::String(write(subject, element)?)))
    };
    languages.into_iter().filter_map(snippet).collect()
}

#[cfg(test)]
mod tests;
