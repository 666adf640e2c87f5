//! The companion file of a node or a slice, without a mount. Uses `formats` and `hierarchy`.

use std::sync::Arc;

use zarrfs::array::{Blocking, Engine, Layout, Readahead, ReplyBuffer};
use zarrfs::cancellation::Cancellation;
use zarrfs::formats::virtual_file::VirtualFile;
use zarrfs::formats::{self, CompanionContent, FORMATS, Format, Role, Subject};
use zarrfs::hierarchy::slices::Slice;
use zarrfs::hierarchy::{Node, Tree};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::nodes::subject::{with_slice, with_subject};
use crate::cli::output::progress;
use crate::cli::output::{self, BLOCK_BYTES, Reader};

/// Returns the format with this name.
pub fn format(name: &str) -> Outcome<&'static Format> {
    formats::find_by_any_name(name).ok_or_else(|| {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        Exit::Usage(format!("unknown format '{name}': the formats are {}", names.join(", ")))
    })
}

/// Returns the error for a format that cannot express a node. It names the formats that can.
pub fn refusal(format: &Format, path: &str, node: &Node, layout: Layout) -> Exit {
    let what = match node {
        Node::Array { metadata, .. } => {
            let shape: Vec<String> = metadata.shape.iter().map(u64::to_string).collect();
            format!("{} of shape ({})", metadata.data_type.name(), shape.join(", "))
        }
        Node::Group { .. } | Node::Broken { .. } => "a group".to_owned(),
    };
    let is_able = |format: &&&Format| format.check.is_none() && (format.expresses)(node, layout);
    let able = FORMATS.iter().filter(is_able).map(|format| format.name);
    let able: Vec<&str> = able.collect();
    Exit::Failed(format!(
        "format '{}' cannot express '{}', {what}, in this order and byte order; {} can",
        format.name,
        open::shown(path),
        able.join(", ")
    ))
}

/// A node, or a slice of it.
pub struct NodeToWrite<'a> {
    /// Its path.
    pub path: &'a str,
    /// The node as it is stored.
    pub node: &'a Node,
    /// The slice.
    pub slice: Option<&'a Arc<Slice>>,
}

/// Writes the companion of a node. If it refers to the array's own file, it names a file in the same folder.
pub fn write(
    format: &'static Format,
    engine: &Arc<Engine>,
    tree: &Tree,
    &NodeToWrite { path, node, slice }: &NodeToWrite<'_>,
    layout: Layout,
) -> Outcome {
    let write = |subject: &Subject<'_>| {
        let refusal = || refusal(format, path, subject.node, layout);
        if !(format.expresses)(subject.node, layout) {
            return Err(refusal());
        }
        if slice.is_some() && (format.role == Role::Text || format.check.is_some()) {
            return Err(Exit::Failed(format!("format '{}' has no slices", format.name)));
        }
        if let Some(check) = format.check
            && !check(subject)?
        {
            return Err(refusal());
        }
        if let Some(reason) = format.refuses.and_then(|refuses| refuses(subject)) {
            let (format, shown) = (format.name, open::shown(path));
            return Err(Exit::Failed(format!("format '{format}' cannot express '{shown}': {reason}")));
        }
        let file = match (format.open)(subject)? {
            CompanionContent::Ready(file) | CompanionContent::OfNodes(file) => file,
            CompanionContent::Elements(companion) => companion.make()?.file,
        };
        copy(&file)
    };
    match slice {
        Some(slice) => with_slice(engine, tree, (path, node, slice), layout, write)?,
        None => with_subject(engine, tree, (path, node), layout, write),
    }
}

fn copy(file: &VirtualFile) -> Outcome {
    let size_bytes = file.size_bytes();
    let bar = progress::output_bytes(size_bytes);
    let (reader, cancellation) = (file.reader(Readahead::Chunks), Cancellation::never());
    let mut buffer = ReplyBuffer::default();
    let mut offset = 0;
    while offset < size_bytes {
        let length = (size_bytes - offset).min(BLOCK_BYTES) as u32;
        let read = file.read(&reader, (offset, length), &mut buffer, Blocking::Yes, &cancellation)?;
        let ended = || Exit::Failed(format!("the file ended after {offset} of {size_bytes} bytes"));
        let block = read.filter(|block| !block.is_empty()).ok_or_else(ended)?;
        offset += block.len() as u64;
        if output::bytes(&block)? == Reader::HasGone {
            break;
        }
        bar.set_position(offset);
    }
    bar.finish_and_clear();
    Ok(())
}
