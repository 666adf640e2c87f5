//! Objects that belong to no chunk, as a sentence and as JSON. Uses `output`.

use serde_json::{Value, json};
use zarrfs::array::Strays;

use crate::cli::output::terminal;

/// Returns a sentence about stray objects; `None` if there are none.
pub fn sentence(strays: &Strays) -> Option<String> {
    if strays.count() == 0 {
        return None;
    }
    let (count, more) = (strays.count(), strays.count() - strays.names().len() as u64);
    let names: Vec<String> = strays.names().iter().map(|name| terminal::printable(name)).collect();
    let more = match (more, strays.is_cut()) {
        (_, true) => " and more".to_owned(),
        (0, false) => String::new(),
        (more, false) => format!(" and {more} more"),
    };
    let noun = if count == 1 { "object belongs" } else { "objects belong" };
    let at_least = if strays.is_cut() { "at least " } else { "" };
    let reason = strays.reason().unwrap_or_else(|| "not named as chunks are".to_owned());
    Some(format!(
        "{at_least}{count} {noun} to no chunk and cannot be read ({reason}): {}{more}",
        names.join(", ")
    ))
}

/// Returns the same as JSON.
pub fn to_json(strays: &Strays) -> Value {
    json!({"count": strays.count(), "is_cut": strays.is_cut(), "names": strays.names(), "reason": strays.reason()})
}
