//! The members of a sidecar about the node's files in other formats.

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::formats::{Subject, shortened};
use crate::hierarchy::Node;

/// The longest file name on Linux.
const MAX_NAME_BYTES: usize = 255;

/// Returns whether a sidecar names the companions that the coordinates rule out, and the parts that depend on other nodes. In a remote store that
/// would cost requests.
pub(super) fn reads_coordinates(subject: &Subject<'_>) -> bool {
    !subject.arrays.store_at(subject.path).is_remote()
}

/// Adds the node's files in other formats, the formats that cannot express it, and the attributes that the files leave out.
pub(super) fn add_companions(subject: &Subject<'_>, sidecar: &mut Map<String, Value>) -> Result<()> {
    let layout = subject.layout();
    let (mut companions, mut absent, mut left_out) = (Map::new(), Map::new(), Map::new());
    for format in subject.data_formats() {
        if !(format.expresses)(subject.node, layout) {
            // The format that the folder is named after says it for the others.
            let is_own_folder = format.folder.is_none();
            let is_expected =
                matches!(subject.node, Node::Array { .. }) && (format.is_expected)(subject.node);
            if is_expected && !format.holds.is_empty() && is_own_folder {
                absent.insert(format.name.into(), json!(format!("holds {}", format.holds)));
            }
            continue;
        }
        let refuses = format.refuses.filter(|_| reads_coordinates(subject));
        if let Some(reason) = refuses.and_then(|refuses| refuses(subject)) {
            absent.insert(format.name.into(), json!(reason));
            continue;
        }
        let file = subject.companion_file(format)?;
        if file.rsplit('/').next().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            absent.insert(format.name.into(), json!(format!("a name of more than {MAX_NAME_BYTES} bytes")));
            continue;
        }
        companions.insert(format.name.into(), json!(file));
        let mut lacking = format.left_out.map(|left_out| left_out(subject.node, layout)).unwrap_or_default();
        if let Some(left_out_parts) = format.left_out_parts.filter(|_| reads_coordinates(subject)) {
            lacking.extend(left_out_parts(subject));
        }
        if !lacking.is_empty() {
            left_out.insert(format.name.into(), json!(shortened(&lacking)));
        }
    }
    for (name, members) in [("companions", companions), ("absent", absent), ("left_out", left_out)] {
        if !members.is_empty() {
            sidecar.insert(name.into(), Value::Object(members));
        }
    }
    Ok(())
}
