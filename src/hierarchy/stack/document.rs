//! The document of a stack: virtual arrays, and the operations that make them from arrays of other stores.
//!
//! Spec: docs/views.md, "Put together"; the words are those of tensorstore's drivers. Uses `metadata` and `error`; no I/O.
//!
//! ```json
//! {"zarrfs_stack": 1,
//!  "groups": {"": {"attributes": {"title": "2024"}}},
//!  "arrays": {
//!    "lat": {"store": "jan.zarr", "path": "lat"},
//!    "rain": {"driver": "concat", "axis": "time", "layers": [
//!      {"store": "jan.zarr", "path": "rain"}, {"store": "feb.zarr", "path": "rain"}]}}}
//! ```
//!
//! Invariants: an operation is nested at most [`MAX_NESTING`] deep, and no list is empty that must have members.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::node::NAME_MAX_BYTES;
use super::super::{DOCUMENT_NAMES, MAX_DEPTH};
use crate::metadata::MAX_RANK;
use crate::metadata::json;

/// The first member of a document, which says what it is.
pub const MARK: &str = "zarrfs_stack";
/// The longest document.
pub const MAX_STACK_BYTES: u64 = 16 << 20;
/// How deep operations may be nested.
pub const MAX_NESTING: usize = 16;
/// The most operations of a document.
pub const MAX_OPERATIONS: usize = 1 << 17;

/// A document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackDocument {
    /// The attributes of groups, by path (`""` is the root). Groups above arrays need not be named.
    pub groups: BTreeMap<String, Map<String, Value>>,
    /// The arrays, by path.
    pub arrays: BTreeMap<String, StackOperation>,
}

/// How the elements of an array are made.
#[derive(Clone, Debug, PartialEq)]
pub enum StackOperation {
    /// The elements of an array in a store.
    Array {
        /// The store: a path, relative to the folder of the document, or a URL. It may be another stack.
        store: String,
        /// The path of the array in the store.
        path: String,
    },
    /// A part.
    Slice {
        /// The whole.
        base: Box<StackOperation>,
        /// The selected elements of each axis.
        index: Vec<SliceEntry>,
    },
    /// Arrays one after the other.
    Concat {
        /// The arrays.
        layers: Vec<StackOperation>,
        /// The axis along which they lie.
        axis: StackAxis,
    },
    /// Arrays along a new axis.
    Stack {
        /// The arrays.
        layers: Vec<StackOperation>,
        /// The place of the new axis.
        axis: usize,
        /// Its name.
        name: Option<String>,
    },
    /// The same numbers in another type.
    Cast {
        /// The numbers.
        base: Box<StackOperation>,
        /// The name of the type.
        data_type: String,
    },
    /// The numbers that packed elements stand for.
    Unpack {
        /// The packed elements.
        base: Box<StackOperation>,
    },
    /// The same elements under other attributes or names of axes. Only a virtual array as a whole has them.
    Described {
        /// The elements.
        base: Box<StackOperation>,
        /// All attributes, if they are not those of the base.
        attributes: Option<Map<String, Value>>,
        /// The names of all axes, if they are not those of the base.
        dimension_names: Option<Vec<Option<String>>>,
    },
    /// One element for several.
    Downsample {
        /// The elements.
        base: Box<StackOperation>,
        /// How many become one, along each axis.
        factors: Vec<u64>,
        /// How.
        method: DownsampleMethod,
    },
}

/// The selected elements of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceEntry {
    /// All.
    All,
    /// One, and the axis is left out.
    Single(u64),
    /// From `start` to before `stop`, each `step`-th.
    Range {
        /// The first.
        start: u64,
        /// The end.
        stop: u64,
        /// The distance, at least 1.
        step: u64,
    },
}

/// An axis of arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackAxis {
    /// Its name.
    Name(String),
    /// Its number.
    Number(usize),
}

/// How several elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownsampleMethod {
    /// The first of them.
    Stride,
    /// Their mean.
    Mean,
}

/// Why a document is refused: its member, and what is wrong.
type Refused = String;

impl StackDocument {
    /// Returns whether these are the first bytes of a stack.
    pub fn begins(start: &[u8]) -> bool {
        let rest = start.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
        rest.is_some_and(|rest| rest.starts_with(format!("\"{MARK}\"").as_bytes()))
    }

    /// Parses a document.
    pub fn parse(text: &[u8]) -> Result<Self, Refused> {
        let members = json::parse_object(text).map_err(|error| error.to_string())?;
        known(&members, &[MARK, "groups", "arrays"])
            .map_err(|unknown| format!("has an unknown member {unknown}"))?;
        if members.get(MARK).and_then(Value::as_u64) != Some(1) {
            return Err(format!("{MARK} is not 1, the only version that this program knows"));
        }
        let mut document = StackDocument::default();
        for (path, group) in object(&members, "groups")?.into_iter().flatten() {
            check_path(path)?;
            let within = |reason| format!("groups, {path:?}: {reason}");
            let group = group.as_object().ok_or_else(|| within("not an object".to_owned()))?;
            known(group, &["attributes"]).map_err(|unknown| within(format!("unknown member {unknown}")))?;
            let attributes = object(group, "attributes").map_err(within)?;
            document.groups.insert(path.clone(), attributes.cloned().unwrap_or_default());
        }
        let mut left = MAX_OPERATIONS;
        for (path, array) in object(&members, "arrays")?.into_iter().flatten() {
            check_path(path)?;
            let spec = StackOperation::parse_array(array, &mut left)
                .map_err(|reason| format!("arrays, {path:?}: {reason}"))?;
            document.arrays.insert(path.clone(), spec);
        }
        document.check_paths()?;
        Ok(document)
    }

    /// Fails if a node is below an array, or is an array and a group.
    fn check_paths(&self) -> Result<(), Refused> {
        for path in self.groups.keys().chain(self.arrays.keys()) {
            let mut above = path.as_str();
            while !above.is_empty() {
                above = above.rsplit_once('/').map_or("", |(above, _)| above);
                if self.arrays.contains_key(above) {
                    return Err(format!("{path:?} is below the array {above:?}"));
                }
            }
            if self.groups.contains_key(path) && self.arrays.contains_key(path) {
                return Err(format!("{path:?} is both a group and an array"));
            }
        }
        Ok(())
    }

    /// Returns the text of the document.
    pub fn to_text(&self) -> String {
        let groups: Map<String, Value> = self
            .groups
            .iter()
            .map(|(path, attributes)| (path.clone(), json!({"attributes": attributes})))
            .collect();
        let arrays: Map<String, Value> =
            self.arrays.iter().map(|(path, spec)| (path.clone(), spec.to_json())).collect();
        let document = json!({MARK: 1, "groups": groups, "arrays": arrays});
        let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl StackOperation {
    /// Parses a virtual array.
    fn parse_array(value: &Value, left: &mut usize) -> Result<Self, Refused> {
        let members = value.as_object().ok_or("not an object")?;
        let attributes = object(members, "attributes")?.cloned();
        let dimension_names = match members.get("dimension_names") {
            None | Some(Value::Null) => None,
            Some(names) => {
                let name = |name: &Value| match name {
                    Value::Null => Some(None),
                    name => name.as_str().map(|name| Some(name.to_owned())),
                };
                let names = names.as_array().and_then(|names| names.iter().map(name).collect());
                Some(names.ok_or("dimension_names is not a list of names")?)
            }
        };
        let mut operation = members.clone();
        operation.shift_remove("attributes");
        operation.shift_remove("dimension_names");
        let base = StackOperation::parse(&Value::Object(operation), 0, left)?;
        if attributes.is_none() && dimension_names.is_none() {
            return Ok(base);
        }
        Ok(StackOperation::Described { base: Box::new(base), attributes, dimension_names })
    }

    fn parse(value: &Value, depth: usize, left: &mut usize) -> Result<Self, Refused> {
        if depth >= MAX_NESTING {
            return Err(format!("operations are nested more than {MAX_NESTING} deep"));
        }
        *left = left.checked_sub(1).ok_or_else(|| format!("more than {MAX_OPERATIONS} operations"))?;
        let members = value.as_object().ok_or("an operation is not an object")?;
        let driver = match members.get("driver") {
            None => "zarr",
            Some(driver) => driver.as_str().ok_or("driver is not a text")?,
        };
        let wanted: &[&str] = match driver {
            "zarr" => &["driver", "store", "path"],
            "slice" => &["driver", "base", "index"],
            "concat" => &["driver", "layers", "axis"],
            "stack" => &["driver", "layers", "axis", "name"],
            "cast" => &["driver", "base", "dtype"],
            "unpack" => &["driver", "base"],
            "downsample" => &["driver", "base", "downsample_factors", "downsample_method"],
            other => {
                let drivers = "zarr, slice, concat, stack, cast, unpack and downsample";
                return Err(format!("driver {other:?} is not one of {drivers}"));
            }
        };
        known(members, wanted).map_err(|unknown| format!("{driver} has no member {unknown}"))?;
        let within = |reason: String| format!("{driver}: {reason}");
        let mut base = || match members.get("base") {
            Some(base) => StackOperation::parse(base, depth + 1, left).map(Box::new),
            None => Err(within("base is missing".to_owned())),
        };
        Ok(match driver {
            "slice" => StackOperation::Slice { base: base()?, index: index(members).map_err(within)? },
            "cast" => {
                StackOperation::Cast { base: base()?, data_type: text(members, "dtype").map_err(within)? }
            }
            "unpack" => StackOperation::Unpack { base: base()? },
            "downsample" => StackOperation::Downsample {
                base: base()?,
                factors: factors(members).map_err(within)?,
                method: method(members).map_err(within)?,
            },
            "concat" => StackOperation::Concat {
                layers: layers(members, depth, left).map_err(within)?,
                axis: axis(members).map_err(within)?,
            },
            "stack" => StackOperation::Stack {
                layers: layers(members, depth, left).map_err(within)?,
                axis: match axis(members).map_err(within)? {
                    StackAxis::Number(number) => number,
                    StackAxis::Name(_) => {
                        return Err(within("axis is not the number of the new axis".to_owned()));
                    }
                },
                name: members.get("name").map(|_| text(members, "name")).transpose().map_err(within)?,
            },
            _ => {
                let path = match members.get("path") {
                    None => String::new(),
                    Some(_) => text(members, "path").map_err(within)?,
                };
                check_path(&path)?;
                StackOperation::Array { store: text(members, "store").map_err(within)?, path }
            }
        })
    }

    fn to_json(&self) -> Value {
        let list = |layers: &[StackOperation]| layers.iter().map(StackOperation::to_json).collect::<Vec<_>>();
        match self {
            StackOperation::Array { store, path } => json!({"store": store, "path": path}),
            StackOperation::Slice { base, index } => {
                json!({"driver": "slice", "base": base.to_json(), "index": index.iter().map(|entry| entry.to_json()).collect::<Vec<_>>()})
            }
            StackOperation::Concat { layers, axis } => {
                let axis = match axis {
                    StackAxis::Name(name) => json!(name),
                    StackAxis::Number(number) => json!(number),
                };
                json!({"driver": "concat", "axis": axis, "layers": list(layers)})
            }
            StackOperation::Stack { layers, axis, name } => {
                let mut value = json!({"driver": "stack", "axis": axis, "layers": list(layers)});
                if let (Some(name), Value::Object(members)) = (name, &mut value) {
                    members.insert("name".to_owned(), json!(name));
                }
                value
            }
            StackOperation::Cast { base, data_type } => {
                json!({"driver": "cast", "dtype": data_type, "base": base.to_json()})
            }
            StackOperation::Unpack { base } => json!({"driver": "unpack", "base": base.to_json()}),
            StackOperation::Described { base, attributes, dimension_names } => {
                let mut value = base.to_json();
                if let Value::Object(members) = &mut value {
                    members.extend(
                        attributes.iter().map(|attributes| ("attributes".to_owned(), json!(attributes))),
                    );
                    members.extend(
                        dimension_names.iter().map(|names| ("dimension_names".to_owned(), json!(names))),
                    );
                }
                value
            }
            StackOperation::Downsample { base, factors, method } => {
                let method = match method {
                    DownsampleMethod::Stride => "stride",
                    DownsampleMethod::Mean => "mean",
                };
                json!({"driver": "downsample", "downsample_factors": factors, "downsample_method": method, "base": base.to_json()})
            }
        }
    }
}

impl SliceEntry {
    fn parse(value: &Value) -> Option<Self> {
        if value.is_null() {
            return Some(SliceEntry::All);
        }
        let Some(list) = value.as_array() else { return value.as_u64().map(SliceEntry::Single) };
        let number = |place: usize| list.get(place).and_then(Value::as_u64);
        let step = if list.len() == 2 { 1 } else { number(2)? };
        let is_range = (2..=3).contains(&list.len()) && step > 0 && number(0)? <= number(1)?;
        is_range.then_some(SliceEntry::Range { start: number(0)?, stop: number(1)?, step })
    }

    fn to_json(self) -> Value {
        match self {
            SliceEntry::All => Value::Null,
            SliceEntry::Single(number) => json!(number),
            SliceEntry::Range { start, stop, step } => json!([start, stop, step]),
        }
    }
}

/// Fails with the name of an unknown member.
fn known<'a>(members: &'a Map<String, Value>, names: &[&str]) -> Result<(), String> {
    let unknown: Option<&'a String> = members.keys().find(|name| !names.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| Err(json::shown_text(name)))
}

fn object<'a>(
    members: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a Map<String, Value>>, Refused> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(_) => Err(format!("{name} is not an object")),
    }
}

fn text(members: &Map<String, Value>, name: &str) -> Result<String, Refused> {
    let text = members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty() || name == "path");
    text.map(str::to_owned).ok_or_else(|| format!("{name} is missing, or not a text"))
}

fn axis(members: &Map<String, Value>) -> Result<StackAxis, Refused> {
    let refused = || "axis is missing, or neither a name nor a number".to_owned();
    match members.get("axis").ok_or_else(refused)? {
        Value::String(name) => Ok(StackAxis::Name(name.clone())),
        number => {
            let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
            number.filter(|number| *number <= MAX_RANK).map(StackAxis::Number).ok_or_else(refused)
        }
    }
}

fn layers(
    members: &Map<String, Value>,
    depth: usize,
    left: &mut usize,
) -> Result<Vec<StackOperation>, Refused> {
    let layers = members.get("layers").and_then(Value::as_array).filter(|layers| !layers.is_empty());
    let layers = layers.ok_or("layers is not a list of operations, or empty")?;
    layers.iter().map(|layer| StackOperation::parse(layer, depth + 1, left)).collect()
}

fn index(members: &Map<String, Value>) -> Result<Vec<SliceEntry>, Refused> {
    let index = members.get("index").and_then(Value::as_array).filter(|index| index.len() <= MAX_RANK);
    let index: Option<Vec<SliceEntry>> =
        index.and_then(|index| index.iter().map(SliceEntry::parse).collect());
    index.ok_or_else(|| {
        "index is not a list of [start, stop, step], numbers and nulls, one for each axis".to_owned()
    })
}

fn factors(members: &Map<String, Value>) -> Result<Vec<u64>, Refused> {
    let factors =
        members.get("downsample_factors").and_then(Value::as_array).filter(|list| list.len() <= MAX_RANK);
    let factor = |factor: &Value| factor.as_u64().filter(|factor| *factor > 0);
    let factors = factors.and_then(|factors| factors.iter().map(factor).collect());
    factors
        .ok_or_else(|| "downsample_factors is not a list of numbers from 1 on, one for each axis".to_owned())
}

fn method(members: &Map<String, Value>) -> Result<DownsampleMethod, Refused> {
    match members.get("downsample_method").and_then(Value::as_str) {
        Some("stride") => Ok(DownsampleMethod::Stride),
        Some("mean") => Ok(DownsampleMethod::Mean),
        _ => Err("downsample_method is neither \"stride\" nor \"mean\"".to_owned()),
    }
}

/// Fails if a path is not one of a node.
fn check_path(path: &str) -> Result<(), Refused> {
    // A node with a longer name is ignored by all readers.
    let is_name = |name: &str| {
        name.len() <= NAME_MAX_BYTES && !name.starts_with("__") && !DOCUMENT_NAMES.contains(&name)
    };
    // All groups above a node are kept, so a hostile document must not name many that are deep.
    let is_shallow = path.split('/').count() <= MAX_DEPTH;
    if crate::store::is_key(path)
        && path.len() <= 4096
        && is_shallow
        && (path.is_empty() || path.split('/').all(is_name))
    {
        return Ok(());
    }
    Err(format!("{} is not the path of a node", json::shown_text(path)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = r#"{"zarrfs_stack": 1, "groups": {"": {"attributes": {"a": NaN}}, "g/h": {}}, "arrays": {
        "lat": {"store": "a.zarr", "path": "lat"},
        "g/rain": {"driver": "concat", "axis": "time", "attributes": {"b": 1}, "dimension_names": ["time", null],
          "layers": [{"driver": "unpack", "base": {"store": "a.zarr"}}, {"driver": "zarr", "store": "b.zarr", "path": "x/y"}]},
        "s": {"driver": "stack", "axis": 0, "name": "run", "layers": [{"driver": "cast", "dtype": "int8", "base": {"store": "c"}}]},
        "d": {"driver": "downsample", "downsample_factors": [2, 1], "downsample_method": "mean", "base":
          {"driver": "slice", "index": [[0, 4, 2], null, 3], "base": {"store": "https://h/a.zarr", "path": ""}}}}}"#;

    #[test]
    fn documents_are_read_as_they_were_written() {
        let document = StackDocument::parse(GOOD.as_bytes()).unwrap();
        assert!(
            StackDocument::begins(GOOD.as_bytes()) && StackDocument::begins(document.to_text().as_bytes())
        );
        assert_eq!(document.arrays.len(), 4);
        assert_eq!(StackDocument::parse(document.to_text().as_bytes()).unwrap(), document);
        assert!(!StackDocument::begins(br#"{"version": 1, "refs": {}}"#) && !StackDocument::begins(b""));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let array = |array: &str| format!(r#"{{"zarrfs_stack": 1, "arrays": {{"a": {array}}}}}"#);
        let deep = (0..MAX_NESTING).fold(r#"{"store": "s"}"#.to_owned(), |base, _| {
            format!(r#"{{"driver": "unpack", "base": {base}}}"#)
        });
        for (text, reason) in [
            (r#"{"zarrfs_stack": 2}"#.to_owned(), "is not 1"),
            (r#"{"zarrfs_stack": 1, "more": 1}"#.to_owned(), "unknown member"),
            (array(r#"{"path": "a"}"#), "store is missing"),
            (array(r#"{"store": "s", "path": "../a"}"#), "not the path of a node"),
            (array(r#"{"store": "s", "path": "zarr.json"}"#), "not the path of a node"),
            (array(&format!(r#"{{"store": "s", "path": "{}"}}"#, "n".repeat(256))), "not the path of a node"),
            (
                format!(
                    r#"{{"zarrfs_stack": 1, "groups": {{"{}": {{}}}}}}"#,
                    vec!["g"; MAX_DEPTH + 1].join("/")
                ),
                "not the path of a node",
            ),
            (array(r#"{"driver": "none"}"#), "is not one of"),
            (array(r#"{"driver": "concat", "axis": 0, "layers": []}"#), "layers is not a list"),
            (array(r#"{"driver": "stack", "axis": "x", "layers": [{"store": "s"}]}"#), "not the number"),
            (array(r#"{"driver": "slice", "base": {"store": "s"}, "index": [[3, 1, 1]]}"#), "index is not"),
            (array(r#"{"driver": "slice", "base": {"store": "s"}, "index": [[0, 1, 0]]}"#), "index is not"),
            (
                array(
                    r#"{"driver": "downsample", "base": {"store": "s"}, "downsample_factors": [0], "downsample_method": "mean"}"#,
                ),
                "from 1 on",
            ),
            (array(&deep), "nested more than"),
            (
                r#"{"zarrfs_stack": 1, "arrays": {"a": {"store": "s"}, "a/b": {"store": "s"}}}"#.to_owned(),
                "below the array",
            ),
        ] {
            let refused = StackDocument::parse(text.as_bytes()).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn no_damage_panics(at in 0usize..2000, new in "[ -~]{0,4}", cut in 0usize..5) {
            let at = at % GOOD.len();
            let after = GOOD.get(at + cut..).unwrap_or_default();
            if let Ok(document) = StackDocument::parse(format!("{}{new}{after}", &GOOD[..at]).as_bytes()) {
                prop_assert_eq!(StackDocument::parse(document.to_text().as_bytes()).unwrap(), document);
            }
        }

        /// A value anywhere replaced by any other.
        #[test]
        fn no_wrong_value_panics(nth in 0usize..70, value in 0usize..12) {
            let values = ["null", "true", "-1", "0", "1e999", "18446744073709551615", "\"\"", "[]", "{}", "[[]]", "[1, 2]", "\"stack\""];
            let mut document = json::parse(GOOD.as_bytes()).unwrap();
            let mut left = nth;
            exchange(&mut document, &mut left, &json::parse(values[value].as_bytes()).unwrap());
            let _ = StackDocument::parse(document.to_string().as_bytes());
        }
    }

    /// Replaces the n-th value in order.
    fn exchange(value: &mut Value, left: &mut usize, new: &Value) {
        if *left == 0 {
            *value = new.clone();
        }
        *left = left.wrapping_sub(1);
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| exchange(item, left, new)),
            Value::Object(members) => members.values_mut().for_each(|item| exchange(item, left, new)),
            _ => {}
        }
    }
}
