//! `zarrfs attrs STORE NODE [KEY=JSON…]`: prints or changes the attributes of an array or a group.

use clap::Args;
use zarrfs::hierarchy::attributes::{self, Edit};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::json;
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::{log, output};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Print the attributes
  zarrfs attrs sample.zarr climate/temperature
  # Set one to a text and one to a list, and remove one
  zarrfs attrs sample.zarr climate/temperature units='\"K\"' range='[200,320]' note=";

/// Print or change the attributes of an array or a group
///
/// Prints them as JSON, as they are stored. KEY=JSON sets an attribute (units='"K"' for a text), and KEY= without a value
/// removes it; the others stay as they are. Consolidated metadata in the groups above is changed too.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array or group in the store; / for the root
    #[arg(value_name = "NODE")]
    node: String,

    /// Set an attribute to a JSON value; KEY= removes it
    #[arg(value_name = "KEY=JSON")]
    changes: Vec<String>,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Prints or changes them.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let changes: Vec<_> = self.changes.iter().map(|change| read(change)).collect::<Outcome<_>>()?;
        let access = if changes.is_empty() { Access::Read } else { Access::Write };
        let store = open::store_for(&self.store, access)?;
        let path = open::path(&self.node);
        let tree = Tree::new(store.clone());
        match tree.node(&path)? {
            Some(Node::Broken { error, .. }) => return Err(error.into()),
            Some(_) => {}
            None => return Err(open::unknown_node(&tree, &path)),
        }
        if changes.is_empty() {
            let text = attributes::stored(store.as_ref(), &path)?;
            output::json(&format!("{text}\n"))?;
        } else {
            attributes::edit(store.as_ref(), &path, &Edit::Members(changes))?;
        }
        Ok(())
    }
}

/// Reads `KEY=JSON`, or `KEY=` without a value.
fn read(change: &str) -> Outcome<(String, Option<String>)> {
    let Some((key, value)) = change.split_once('=') else {
        return Err(Exit::Usage(format!("'{change}' is not of the form KEY=JSON")));
    };
    if key.is_empty() {
        return Err(Exit::Usage(format!("'{change}' has no key: write KEY=JSON, or KEY= to remove KEY")));
    }
    if value.is_empty() {
        return Ok((key.to_owned(), None));
    }
    if let Err(fault) = json::parse(value.as_bytes()) {
        let hint = if value.starts_with(['"', '[', '{']) {
            String::new()
        } else {
            format!("; write text as {key}='\"{value}\"'")
        };
        return Err(Exit::Usage(format!("the value of '{key}' is {fault}{hint}")));
    }
    Ok((key.to_owned(), Some(value.to_owned())))
}
