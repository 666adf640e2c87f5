//! Arrays of every kind that is stored differently, small, by their metadata documents.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// How an array is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Raw,
    Compressed,
    Transposed,
    Sharded,
    Nested,
    BehindCodecs,
    Rectilinear,
    RectilinearShards,
    V2,
    V2Fortran,
    V2Null,
    V1,
}

const FORMS: [Form; 12] = [
    Form::Raw,
    Form::Compressed,
    Form::Transposed,
    Form::Sharded,
    Form::Nested,
    Form::BehindCodecs,
    Form::Rectilinear,
    Form::RectilinearShards,
    Form::V2,
    Form::V2Fortran,
    Form::V2Null,
    Form::V1,
];

/// A data type, and a fill value that is not zero.
struct Element {
    v3: &'static str,
    /// The name without the byte order; `None` where v1 and v2 do not have the type.
    v2: Option<&'static str>,
    /// Bytes that are swapped together.
    component: usize,
    fill: &'static str,
    /// The fill value, little-endian.
    fill_bytes: &'static [u8],
}

const ELEMENTS: [Element; 6] = [
    Element { v3: "uint8", v2: Some("u1"), component: 1, fill: "7", fill_bytes: &[7] },
    Element { v3: "int16", v2: Some("i2"), component: 2, fill: "-7", fill_bytes: &[0xF9, 0xFF] },
    Element {
        v3: "float64",
        v2: Some("f8"),
        component: 8,
        fill: "1.5",
        fill_bytes: &[0, 0, 0, 0, 0, 0, 0xF8, 0x3F],
    },
    Element { v3: "bool", v2: Some("b1"), component: 1, fill: "true", fill_bytes: &[1] },
    Element {
        v3: "complex64",
        v2: None,
        component: 4,
        fill: "[1.5, -2.0]",
        fill_bytes: &[0, 0, 0xC0, 0x3F, 0, 0, 0, 0xC0],
    },
    Element { v3: "r24", v2: None, component: 1, fill: "[1, 2, 3]", fill_bytes: &[1, 2, 3] },
];

/// One axis: its length, the inner chunks' length, and how many of the smaller the larger parts hold.
#[derive(Clone, Debug)]
pub struct Axis {
    length: u64,
    inner: u64,
    counts: (u64, u64),
}

impl Axis {
    fn middle(&self) -> u64 {
        self.inner * self.counts.0
    }

    fn outer(&self) -> u64 {
        self.middle() * self.counts.1
    }
}

/// One array.
#[derive(Clone, Debug)]
pub struct ArrayCase {
    pub form: Form,
    axes: Vec<Axis>,
    element: usize,
    has_fill: bool,
    is_big: bool,
}

fn axis(longest: u64) -> impl Strategy<Value = Axis> {
    (0..=longest, 1u64..=4, 1u64..=2, 1u64..=3).prop_map(|(length, inner, middle, outer)| Axis {
        length: length.max(1),
        inner,
        counts: (middle, outer),
    })
}

pub fn array() -> impl Strategy<Value = ArrayCase> {
    let axes = (0usize..=3).prop_flat_map(|rank| vec(axis([0, 120, 14, 7][rank]), rank));
    (0..FORMS.len(), axes, 0..ELEMENTS.len(), any::<bool>(), any::<bool>()).prop_map(
        |(form, axes, element, has_fill, is_big)| ArrayCase {
            form: FORMS[form],
            axes,
            element,
            has_fill,
            is_big,
        },
    )
}

fn bytes(is_big: bool) -> Value {
    json!({"name": "bytes", "configuration": {"endian": if is_big { "big" } else { "little" }}})
}

fn shards(inner: &[u64], codecs: Value, location: &str) -> Value {
    json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": inner, "codecs": codecs, "index_location": location,
        "index_codecs": [bytes(false), {"name": "crc32c"}]}})
}

impl ArrayCase {
    fn is_v3(&self) -> bool {
        !matches!(self.form, Form::V2 | Form::V2Fortran | Form::V2Null | Form::V1)
    }

    fn element(&self) -> &'static Element {
        let element = &ELEMENTS[self.element];
        if self.is_v3() || element.v2.is_some() { element } else { &ELEMENTS[2] }
    }

    pub fn is_bool(&self) -> bool {
        self.element().v3 == "bool"
    }

    /// Returns the file's size.
    pub fn size_bytes(&self) -> usize {
        let elements: u64 = self.axes.iter().map(|axis| axis.length).product();
        elements as usize * self.element().fill_bytes.len()
    }

    fn has_fill(&self) -> bool {
        self.has_fill && self.form != Form::V2Null
    }

    /// Returns one element that was never written, as served.
    pub fn fill(&self, is_big: bool) -> Vec<u8> {
        let element = self.element();
        let mut bytes =
            if self.has_fill() { element.fill_bytes.to_vec() } else { vec![0; element.fill_bytes.len()] };
        if is_big {
            bytes.chunks_mut(element.component).for_each(<[u8]>::reverse);
        }
        bytes
    }

    /// Bytes of one row along the slowest axis as served, where the array can become longer there without another grid.
    pub fn row_bytes(&self, is_fortran: bool) -> Option<usize> {
        let is_regular = !matches!(self.form, Form::Rectilinear | Form::RectilinearShards);
        let axes = match (is_regular, is_fortran) {
            (false, _) => return None,
            (true, false) => self.axes.split_first()?.1,
            (true, true) => self.axes.split_last()?.1,
        };
        let elements: u64 = axes.iter().map(|axis| axis.length).product();
        Some(elements as usize * self.element().fill_bytes.len())
    }

    /// Returns whether a chunk that holds nothing but the fill value is not stored.
    pub fn drops_fill(&self) -> bool {
        self.form != Form::V2Null
    }

    /// Returns the documents that describe it, by key below its folder.
    pub fn documents(&self) -> Vec<(&'static str, Value)> {
        let (shape, inner) = self.shapes(|axis| axis.length, |axis| axis.inner);
        let (middle, outer) = self.shapes(Axis::middle, Axis::outer);
        if !self.is_v3() {
            return self.old_documents(&shape, &outer);
        }
        let reversed = |shape: &[u64]| shape.iter().rev().copied().collect::<Vec<u64>>();
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let transpose = json!({"name": "transpose", "configuration": {"order": order}});
        let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}});
        let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
        let bytes = bytes(self.is_big);
        let codecs = match self.form {
            Form::Raw => json!([bytes]),
            Form::Compressed | Form::Rectilinear => json!([bytes, zstd, {"name": "crc32c"}]),
            Form::Transposed => json!([transpose, bytes, gzip]),
            Form::Sharded => json!([shards(&inner, json!([bytes, zstd]), "end")]),
            Form::Nested => {
                let innermost = shards(&reversed(&inner), json!([bytes, gzip]), "end");
                json!([transpose, shards(&reversed(&middle), json!([innermost]), "start")])
            }
            Form::BehindCodecs => json!([shards(&inner, json!([bytes]), "end"), {"name": "crc32c"}]),
            _ => json!([shards(&inner, json!([transpose, bytes]), "start")]),
        };
        let grid = match self.form {
            Form::Rectilinear | Form::RectilinearShards => {
                let lengths: Vec<Vec<u64>> = self.axes.iter().map(Axis::lengths).collect();
                json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": lengths}})
            }
            _ => json!({"name": "regular", "configuration": {"chunk_shape": outer}}),
        };
        let zeros = match self.element().v3 {
            "bool" => "false",
            "complex64" => "[0.0, 0.0]",
            "r24" => "[0, 0, 0]",
            _ => "0",
        };
        let fill: Value =
            serde_json::from_str(if self.has_fill() { self.element().fill } else { zeros }).unwrap();
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": self.element().v3,
            "chunk_grid": grid, "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
            "attributes": {"number": 0},
        });
        vec![("zarr.json", document)]
    }

    fn shapes(&self, first: impl Fn(&Axis) -> u64, second: impl Fn(&Axis) -> u64) -> (Vec<u64>, Vec<u64>) {
        (self.axes.iter().map(first).collect(), self.axes.iter().map(second).collect())
    }

    fn old_documents(&self, shape: &[u64], chunks: &[u64]) -> Vec<(&'static str, Value)> {
        let element = self.element();
        let order = match (element.component, self.is_big) {
            (1, _) => '|',
            (_, true) => '>',
            (_, false) => '<',
        };
        let fill: Value = match (self.form, self.has_fill(), self.is_bool()) {
            (Form::V2Null, ..) => Value::Null,
            (_, true, _) => serde_json::from_str(element.fill).unwrap(),
            (_, false, true) => json!(false),
            (_, false, false) => json!(0),
        };
        let mut document = json!({
            "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": format!("{order}{}", element.v2.unwrap()),
            "fill_value": fill, "order": if self.form == Form::V2Fortran { "F" } else { "C" },
        });
        let attributes = json!({"number": 0});
        if self.form == Form::V1 {
            document["zarr_format"] = json!(1);
            document["compression"] = json!("zlib");
            document["compression_opts"] = json!(1);
            return vec![("meta", document), ("attrs", attributes)];
        }
        let zlib = json!({"id": "zlib", "level": 1});
        document["compressor"] = if self.form == Form::V2 { Value::Null } else { zlib };
        document["filters"] = Value::Null;
        vec![(".zarray", document), (".zattrs", attributes)]
    }
}

impl Axis {
    /// Lengths of chunks that differ, all multiples of the inner chunk's, to the end of the axis or beyond.
    fn lengths(&self) -> Vec<u64> {
        let mut lengths = Vec::new();
        for length in [self.middle(), self.inner, self.outer()].into_iter().cycle() {
            if lengths.iter().sum::<u64>() >= self.length {
                break;
            }
            lengths.push(length);
        }
        lengths
    }
}
