//! The nodes that `zarrfs demo` writes: a little of everything that real stores contain. It is computed, so that it is the same everywhere.

use serde_json::{Value, json};

/// A node of the sample hierarchy.
pub struct SampleNode {
    /// The path; the root is `""`.
    pub path: &'static str,
    /// The documents by name, with the array's or group's own first.
    pub documents: Vec<(&'static str, Value)>,
    /// What the node contains.
    pub content: NodeContent,
}

/// What a node contains.
pub enum NodeContent {
    /// Other nodes.
    Group,
    /// The elements in canonical form, C order.
    Elements(Vec<u8>),
    /// Stored chunks as they are, by key.
    Chunks(Vec<(&'static str, Vec<u8>)>),
}

/// Returns all nodes.
pub fn all() -> Vec<SampleNode> {
    let mut samples =
        vec![group_v3("", json!({ "title": "A sample of Zarr arrays", "written_by": "zarrfs demo" }))];
    samples.extend(climate());
    samples.extend(microscope());
    samples.extend(small());
    samples.extend(version_2());
    samples
}

fn group_v3(path: &'static str, attributes: Value) -> SampleNode {
    let document = json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes });
    SampleNode { path, documents: vec![("zarr.json", document)], content: NodeContent::Group }
}

/// The members that differ from one v3 array to the next.
struct V3 {
    path: &'static str,
    shape: Value,
    data_type: &'static str,
    chunk_shape: Value,
    fill_value: Value,
    codecs: Value,
    dimension_names: Value,
    attributes: Value,
}

impl V3 {
    fn sample(self, content: NodeContent) -> SampleNode {
        let document = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.data_type,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": self.chunk_shape } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": self.fill_value,
            "codecs": self.codecs,
            "dimension_names": self.dimension_names,
            "attributes": self.attributes,
        });
        SampleNode { path: self.path, documents: vec![("zarr.json", document)], content }
    }
}

/// Makes the bytes of an array from a function of the indices.
fn elements<const SIZE: usize>(shape: &[u64], element: impl Fn(&[u64]) -> [u8; SIZE]) -> NodeContent {
    let mut bytes = Vec::new();
    let mut index = vec![0; shape.len()];
    for _ in 0..shape.iter().product::<u64>() {
        bytes.extend_from_slice(&element(&index));
        for (position, length) in index.iter_mut().zip(shape).rev() {
            *position += 1;
            if *position < *length {
                break;
            }
            *position = 0;
        }
    }
    NodeContent::Elements(bytes)
}

/// Returns the position on one axis.
fn at(index: &[u64], axis: usize) -> f64 {
    index.get(axis).copied().unwrap_or_default() as f64
}

fn little_endian_bytes() -> Value {
    json!({ "name": "bytes", "configuration": { "endian": "little" } })
}

fn blosc(compressor: &str, item_size: u64) -> Value {
    json!({ "name": "blosc", "configuration": {
        "cname": compressor, "clevel": 5, "shuffle": "shuffle", "typesize": item_size, "blocksize": 0,
    } })
}

/// Returns a monthly mean in kelvin at an index of (month, latitude, longitude).
fn temperature(index: &[u64]) -> f32 {
    let (month, latitude, longitude) = (at(index, 0), at(index, 1) - 89.5, at(index, 2));
    // The northern hemisphere has more land, and warms and cools more.
    let swing = if latitude > 0.0 { 6.0 } else { 12.0 };
    let season = (month / 6.0 * std::f64::consts::PI).cos() * latitude / swing;
    let waves = (longitude.to_radians() * 3.0 + month).sin() * (latitude.to_radians() * 2.0).cos() * 4.0;
    (301.0 - 55.0 * latitude.to_radians().sin().powi(2) - season + waves) as f32
}

/// Returns a year of monthly fields on a one-degree grid, by the CF conventions.
fn climate() -> Vec<SampleNode> {
    let field = |path, data_type, chunk_shape, fill_value, compressor, attributes| V3 {
        path,
        shape: json!([12, 180, 360]),
        data_type,
        chunk_shape,
        fill_value,
        codecs: json!([little_endian_bytes(), compressor]),
        dimension_names: json!(["time", "lat", "lon"]),
        attributes,
    };
    let floats = field(
        "climate/temperature",
        "float32",
        json!([1, 90, 120]),
        json!(-9999.0),
        json!({ "name": "zstd", "configuration": { "level": 3, "checksum": true } }),
        json!({ "standard_name": "air_temperature", "units": "K" }),
    );
    let packed = field(
        "climate/packed_temperature",
        "int16",
        json!([12, 60, 60]),
        json!(-32768),
        json!({ "name": "gzip", "configuration": { "level": 5 } }),
        json!({
            "standard_name": "air_temperature", "units": "K", "scale_factor": 0.01, "add_offset": 273.15,
        }),
    );
    let shape = [12, 180, 360];
    let mut samples =
        vec![group_v3("climate", json!({ "Conventions": "CF-1.11", "title": "Made-up monthly means" }))];
    samples.extend(coordinates());
    samples.push(floats.sample(elements(&shape, |index| temperature(index).to_le_bytes())));
    samples.push(packed.sample(elements(&shape, |index| {
        (((f64::from(temperature(index)) - 273.15) / 0.01).round() as i16).to_le_bytes()
    })));
    samples
}

/// Returns the coordinates of the fields.
fn coordinates() -> Vec<SampleNode> {
    let axis = |path, length: u64, data_type, name: &str, attributes, content| {
        V3 {
            path,
            shape: json!([length]),
            data_type,
            chunk_shape: json!([length]),
            fill_value: json!(0),
            codecs: json!([little_endian_bytes()]),
            dimension_names: json!([name]),
            attributes,
        }
        .sample(content)
    };
    let degrees = |length, first: f64| elements(&[length], |index| (at(index, 0) + first).to_le_bytes());
    let days = elements(&[12], |index| (15 + 30 * at(index, 0) as i32).to_le_bytes());
    let of_time = json!({ "standard_name": "time", "units": "days since 2000-01-01", "calendar": "365_day" });
    let of_latitude = json!({ "standard_name": "latitude", "units": "degrees_north" });
    let of_longitude = json!({ "standard_name": "longitude", "units": "degrees_east" });
    vec![
        axis("climate/time", 12, "int32", "time", of_time, days),
        axis("climate/lat", 180, "float64", "lat", of_latitude, degrees(180, -89.5)),
        axis("climate/lon", 360, "float64", "lon", of_longitude, degrees(360, 0.5)),
    ]
}

/// Returns a volume in shards, and a colour picture.
fn microscope() -> Vec<SampleNode> {
    // Centre and radius of each cell, in voxels.
    const CELLS: [([f64; 3], f64); 7] = [
        ([8.0, 40.0, 50.0], 24.0),
        ([16.0, 120.0, 60.0], 30.0),
        ([24.0, 200.0, 200.0], 36.0),
        ([12.0, 80.0, 180.0], 28.0),
        ([20.0, 180.0, 110.0], 22.0),
        ([6.0, 220.0, 30.0], 18.0),
        ([28.0, 30.0, 220.0], 20.0),
    ];
    let brightness = |index: &[u64]| {
        let of_cell = |(centre, radius): &([f64; 3], f64)| {
            let squares = centre.iter().enumerate().map(|(axis, middle)| {
                // Slices lie twice as far apart as pixels.
                let distance = (at(index, axis) - middle) * if axis == 0 { 2.0 } else { 1.0 };
                distance * distance
            });
            (1.0 - squares.sum::<f64>() / (radius * radius)).max(0.0)
        };
        CELLS.iter().map(of_cell).sum::<f64>()
    };
    let volume = [32, 256, 256];
    vec![
        group_v3("microscope", json!({ "pixel_size_um": [0.5, 0.25, 0.25] })),
        V3 {
            path: "microscope/cells",
            shape: json!(volume),
            data_type: "uint16",
            chunk_shape: json!([16, 256, 256]),
            fill_value: json!(0),
            codecs: json!([{ "name": "sharding_indexed", "configuration": {
                "chunk_shape": [8, 64, 64],
                "codecs": [little_endian_bytes(), blosc("lz4", 2)],
                "index_codecs": [little_endian_bytes(), { "name": "crc32c" }],
                "index_location": "end",
            } }]),
            dimension_names: json!(["z", "y", "x"]),
            attributes: json!({ "long_name": "fluorescence" }),
        }
        .sample(elements(&volume, |index| ((brightness(index) * 40_000.0) as u16).to_le_bytes())),
        V3 {
            path: "microscope/overview",
            shape: json!([256, 256, 3]),
            data_type: "uint8",
            chunk_shape: json!([128, 128, 3]),
            fill_value: json!(0),
            codecs: json!([{ "name": "bytes" }, blosc("zstd", 1)]),
            dimension_names: json!(["y", "x", "rgb"]),
            attributes: json!({}),
        }
        .sample(elements(&[256, 256, 3], |index| {
            let (row, column) = (index.first().copied().unwrap_or(0), index.get(1).copied().unwrap_or(0));
            let light = brightness(&[16, row, column]) * 200.0;
            let part = [light, 40.0 + light * 0.8, at(index, 0) / 2.0];
            let channel = part.get(at(index, 2) as usize).copied().unwrap_or_default();
            [channel.min(255.0) as u8]
        })),
    ]
}

/// Returns a scalar, complex numbers, bits, Fortran order, an array with few stored chunks, and one that has no flat form.
fn small() -> Vec<SampleNode> {
    let plain = |path, shape: Value, data_type, chunk_shape: Value, fill_value: Value| V3 {
        path,
        shape,
        data_type,
        chunk_shape,
        fill_value,
        codecs: json!([little_endian_bytes()]),
        dimension_names: Value::Null,
        attributes: json!({}),
    };
    let table = [6, 4];
    vec![
        group_v3("small", json!({})),
        plain("small/answer", json!([]), "int64", json!([]), json!(0))
            .sample(elements(&[], |_| 42i64.to_le_bytes())),
        plain("small/spiral", json!([1000]), "complex128", json!([300]), json!([0, 0])).sample(elements(
            &[1000],
            |index| {
                let turn = at(index, 0) / 50.0;
                let mut both = [0; 16];
                let parts = [(turn * turn.cos()).to_le_bytes(), (turn * turn.sin()).to_le_bytes()].concat();
                both.copy_from_slice(&parts);
                both
            },
        )),
        V3 {
            codecs: json!([{ "name": "bytes" }, { "name": "crc32c" }]),
            ..plain("small/is_prime", json!([100]), "bool", json!([40]), json!(false))
        }
        .sample(elements(&[100], |index| {
            let number = index.first().copied().unwrap_or(0);
            [u8::from(number > 1 && (2..number).all(|divisor| number % divisor != 0))]
        })),
        V3 {
            codecs: json!([
                { "name": "transpose", "configuration": { "order": [1, 0] } },
                { "name": "bytes", "configuration": { "endian": "big" } },
            ]),
            attributes: json!({ "comment": "stored in Fortran order, big-endian; served as asked" }),
            ..plain("small/fortran_order", json!(table), "float64", json!([4, 4]), json!("NaN"))
        }
        .sample(elements(&table, |index| (at(index, 0) * 10.0 + at(index, 1)).to_le_bytes())),
        V3 {
            attributes: json!({ "comment": "only one of 64 chunks is stored; the rest is the fill value" }),
            ..plain("small/mostly_missing", json!([2048, 2048]), "uint8", json!([256, 256]), json!(0))
        }
        .sample(elements(&[2048, 2048], |index| {
            let inside = |axis| (512.0..768.0).contains(&at(index, axis));
            [u8::from(inside(0) && inside(1)) * 255]
        })),
        V3 {
            codecs: json!([{ "name": "vlen-utf8", "configuration": {} }]),
            attributes: json!({ "comment": "strings of any length have no flat form: the sidecar says so" }),
            ..plain("small/station_names", json!([3]), "string", json!([3]), json!(""))
        }
        .sample(NodeContent::Chunks(vec![("c/0", vlen_utf8(&["Ny-Ålesund", "Mauna Loa", "Neumayer III"]))])),
    ]
}

/// Encodes strings as the vlen-utf8 codec does: the count, then each string after its length.
fn vlen_utf8(strings: &[&str]) -> Vec<u8> {
    let mut bytes = (strings.len() as u32).to_le_bytes().to_vec();
    for string in strings {
        bytes.extend_from_slice(&(string.len() as u32).to_le_bytes());
        bytes.extend_from_slice(string.as_bytes());
    }
    bytes
}

/// Returns a group of Zarr version 2.
fn version_2() -> Vec<SampleNode> {
    let array = |path, document: Value, attributes: Value, content| SampleNode {
        path,
        documents: vec![(".zarray", document), (".zattrs", attributes)],
        content,
    };
    let instants = |index: &[u64]| 1_577_836_800_000 + 3_600_000 * at(index, 0) as i64;
    vec![
        SampleNode {
            path: "version_2",
            documents: vec![
                (".zgroup", json!({ "zarr_format": 2 })),
                (".zattrs", json!({ "comment": "written as Zarr version 2" })),
            ],
            content: NodeContent::Group,
        },
        array(
            "version_2/matrix",
            json!({
                "zarr_format": 2, "shape": [100, 50], "chunks": [30, 20], "dtype": ">f8", "order": "F",
                "fill_value": 0.0, "filters": null, "compressor": { "id": "zlib", "level": 6 },
            }),
            json!({ "_ARRAY_DIMENSIONS": ["row", "column"] }),
            elements(&[100, 50], |index| (at(index, 0) + at(index, 1) / 100.0).to_le_bytes()),
        ),
        array(
            "version_2/events",
            json!({
                "zarr_format": 2, "shape": [500], "chunks": [200],
                "dtype": [["time", "<M8[ms]"], ["energy", "<f4"], ["channel", "|u1"]], "order": "C",
                "fill_value": null, "filters": null,
                "compressor": { "id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0 },
            }),
            json!({ "comment": "records of 13 bytes: time, energy, channel" }),
            elements(&[500], |index| {
                let mut record = [0; 13];
                let energy = (at(index, 0) * 0.7).sin().abs() as f32 * 100.0;
                let channel = (at(index, 0) as u64 * 7 % 16) as u8;
                let parts = [&instants(index).to_le_bytes()[..], &energy.to_le_bytes(), &[channel]].concat();
                record.copy_from_slice(&parts);
                record
            }),
        ),
        array(
            "version_2/timestamps",
            json!({
                "zarr_format": 2, "shape": [500], "chunks": [250], "dtype": "<M8[ms]", "order": "C",
                "fill_value": 0, "filters": [{ "id": "delta", "dtype": "<i8" }],
                "compressor": { "id": "zstd", "level": 3 }, "dimension_separator": "/",
            }),
            json!({}),
            elements(&[500], |index| instants(index).to_le_bytes()),
        ),
        array(
            "version_2/labels",
            json!({
                "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<U8", "order": "C",
                "fill_value": "", "filters": null, "compressor": null,
            }),
            json!({}),
            NodeContent::Elements(
                ["north", "Osten", "sør", "西"]
                    .iter()
                    .flat_map(|word| word.chars().chain(std::iter::repeat('\0')).take(8))
                    .flat_map(|character| u32::from(character).to_le_bytes())
                    .collect(),
            ),
        ),
    ]
}
