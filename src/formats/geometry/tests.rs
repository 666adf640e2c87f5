//! Each mapping on a store in memory, and what must not be guessed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, memory, store, with_subject};
use crate::formats::geometry::coordinates::regular;
use crate::metadata::data_type::numeric::NumericType;
use crate::store::Store;

fn geometry(documents: &[(&str, Value)], path: &str) -> Geometry {
    with_subject(&store(documents), path, LITTLE, Geometry::from_subject)
}

fn group(attributes: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "group", "attributes": attributes})
}

/// First and step of each axis.
fn places(geometry: &Geometry) -> Vec<Option<(f64, f64)>> {
    geometry.axes.iter().map(|axis| axis.regular.map(|it| (it.first, it.step))).collect()
}

fn multiscales(transformations: Value, outer: Value) -> Value {
    let mut multiscale = json!({
        "axes": [{"name": "c", "type": "channel"}, {"name": "y", "type": "space", "unit": "micrometer"},
            {"name": "x", "type": "space", "unit": "micrometer"}],
        "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 9, 9]}]},
            {"path": "s/1", "coordinateTransformations": transformations}],
    });
    if !outer.is_null() {
        multiscale["coordinateTransformations"] = outer;
    }
    json!([multiscale])
}

fn of_multiscales(attributes: Value) -> Geometry {
    let documents = [
        ("image", group(attributes)),
        ("image/s", group(json!({}))),
        ("image/s/1", document(&[2, 3, 4], "uint16", json!({}))),
    ];
    geometry(&documents, "image/s/1")
}

#[test]
fn multiscales_of_both_versions() {
    let both =
        json!([{"type": "scale", "scale": [1, 2, 4]}, {"type": "translation", "translation": [0, 5, 7]}]);
    let of = multiscales(both.clone(), Value::Null);
    for attributes in [json!({"multiscales": of}), json!({"ome": {"version": "0.5", "multiscales": of}})] {
        let found = of_multiscales(attributes);
        assert_eq!(places(&found), [None, Some((5.0, 2.0)), Some((7.0, 4.0))]);
        assert_eq!(
            found.axes.iter().map(|axis| axis.kind).collect::<Vec<_>>(),
            [AxisKind::Channel, AxisKind::Y, AxisKind::X]
        );
        assert_eq!(found.axes[2].unit.as_deref(), Some("micrometer"));
    }
    let outer = json!([{"type": "scale", "scale": [1, 10, 10]}]);
    let found = of_multiscales(json!({"multiscales": multiscales(both, outer)}));
    assert_eq!(places(&found), [None, Some((50.0, 20.0)), Some((70.0, 40.0))]);
    for wrong in [
        json!([]),
        json!([{"type": "affine", "affine": []}]),
        json!([{"type": "scale", "scale": [1, 2]}]),
        json!([{"type": "scale", "scale": [1, 0, 2]}]),
        json!([{"type": "scale", "path": "elsewhere"}]),
        json!([{"type": "translation", "translation": [0, 5, 7]}]),
        json!({}),
    ] {
        let found = of_multiscales(json!({"multiscales": multiscales(wrong.clone(), Value::Null)}));
        assert_eq!(places(&found), [None; 3], "{wrong}");
    }
}

#[test]
fn multiscales_with_coordinate_systems() {
    let axes = json!([{"name": "c", "type": "channel"}, {"name": "y", "type": "space", "unit": "micrometer"},
        {"name": "x", "type": "space", "unit": "micrometer"}]);
    let other = json!([{"name": "i", "type": "array"}, {"name": "j", "type": "array"}, {"name": "k", "type": "array"}]);
    let of = |transformations: Value| {
        let multiscale = json!({
            "coordinateSystems": [{"name": "array", "axes": other}, {"name": "physical", "axes": axes}],
            "datasets": [{"path": "s/1", "coordinateTransformations": transformations}],
            // It leads to another system.
            "coordinateTransformations": [{"type": "scale", "scale": [1, 10, 10], "input": "physical", "output": "world"}],
        });
        of_multiscales(json!({"ome": {"version": "0.6", "multiscales": [multiscale]}}))
    };
    let scale = json!({"type": "scale", "scale": [1, 2, 4]});
    let translation = json!({"type": "translation", "translation": [0, 5, 7]});
    let both = json!([scale, translation]);
    for output in [json!("physical"), json!({"name": "physical"})] {
        let found =
            of(json!([{"type": "sequence", "input": "1", "output": output, "transformations": both}]));
        assert_eq!(places(&found), [None, Some((5.0, 2.0)), Some((7.0, 4.0))]);
        assert_eq!(found.axes[2].unit.as_deref(), Some("micrometer"));
    }
    // As in the examples of 0.6rc0, July 2026.
    let found = of(
        json!([{"type": "scale", "scale": [1, 2, 4], "input": {"path": "s/1"}, "output": {"name": "physical"}}]),
    );
    assert_eq!(places(&found), [None, Some((0.0, 2.0)), Some((0.0, 4.0))]);
    let found = of(json!([{"type": "scale", "scale": [1, 2, 4], "output": "physical"}]));
    assert_eq!(places(&found), [None, Some((0.0, 2.0)), Some((0.0, 4.0))]);
    let found = of(json!([{"type": "identity", "output": "physical"}]));
    assert_eq!(places(&found), [None, Some((0.0, 1.0)), Some((0.0, 1.0))]);
    for unknown in [
        json!([{"type": "affine", "affine": [], "output": "physical"}]),
        json!([{"type": "scale", "scale": [1, 2, 4], "output": "nowhere"}]),
        json!([{"type": "sequence", "output": "physical", "transformations": [translation, scale]}]),
        json!([{"type": "sequence", "output": "physical", "transformations": [{"type": "sequence"}]}]),
        json!([]),
        json!({}),
    ] {
        assert_eq!(places(&of(unknown.clone())), [None; 3], "{unknown}");
    }
}

/// As in the examples of zarr-conventions/multiscales and zarr-conventions/spatial: levels that are groups, or arrays.
#[test]
fn levels_of_geozarr() {
    let layout = json!([
        {"asset": "r10m", "transform": {"scale": [1.0, 1.0], "translation": [0.0, 0.0]}, "spatial:shape": [1200, 1200]},
        {"asset": "r20m", "derived_from": "r10m", "transform": {"scale": [2.0, 2.0], "translation": [0.0, 0.0]},
            "spatial:transform": [20.0, 0.0, 500000.0, 0.0, -20.0, 5000000.0]},
        {"asset": "r60m", "derived_from": "r10m", "transform": {"scale": [6.0, 6.0], "translation": [0.0, 0.0]}},
    ]);
    let whole = group(json!({"multiscales": {"layout": layout},
        "spatial:transform": [10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0]}));
    let field = || document(&[3, 4], "float32", json!({"dimension_names": ["Y", "X"]}));
    let of = |level: &str, is_group: bool| {
        let (folder, array) = (format!("m/{level}"), format!("m/{level}/b"));
        let documents = if is_group {
            vec![("m", whole.clone()), (folder.as_str(), group(json!({}))), (array.as_str(), field())]
        } else {
            vec![("m", whole.clone()), (folder.as_str(), field())]
        };
        places(&geometry(&documents, if is_group { &array } else { &folder }))
    };
    for is_group in [true, false] {
        assert_eq!(of("r10m", is_group), [Some((4_999_995.0, -10.0)), Some((500_005.0, 10.0))]);
        assert_eq!(of("r20m", is_group), [Some((4_999_990.0, -20.0)), Some((500_010.0, 20.0))]);
        assert_eq!(of("r60m", is_group), [None, None], "the transform of the group is that of the full size");
        assert_eq!(of("r2", is_group), [None, None]);
    }
}

/// Returns a group of a field and its coordinates, with values as they are stored.
fn climate(changes: &[(&str, Value)], latitudes: &[f64]) -> Arc<dyn Store> {
    let coordinate = |name: &str, length: u64, attributes: Value| {
        document(&[length], "float64", json!({"dimension_names": [name], "attributes": attributes}))
    };
    let mut documents = vec![
        ("g/t", document(&[2, 3, 4], "float32", json!({"dimension_names": ["time", "lat", "lon"]}))),
        ("g/time", coordinate("time", 2, json!({"units": "days since 2000-01-01", "calendar": "noleap"}))),
        ("g/lat", coordinate("lat", 3, json!({"units": "degrees_north"}))),
        ("g/lon", coordinate("lon", 4, json!({"units": "degrees_east"}))),
    ];
    for (path, document) in changes {
        documents.retain(|(known, _)| known != path);
        documents.push((path, document.clone()));
    }
    let store = memory(&documents);
    let put = |name: &str, values: &[f64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        store.put(&format!("g/{name}/c/0"), bytes).unwrap();
    };
    put("time", &[15.0, 45.0]);
    put("lat", latitudes);
    put("lon", &[0.5, 1.5, 2.5, 3.5]);
    Arc::new(store)
}

#[test]
fn coordinates() {
    for layout in [LITTLE, BIG_F] {
        let found = with_subject(&climate(&[], &[60.0, 0.0, -60.0]), "g/t", layout, Geometry::from_subject);
        assert_eq!(places(&found), [Some((15.0, 30.0)), Some((60.0, -60.0)), Some((0.5, 1.0))]);
        assert_eq!(
            found.axes.iter().map(|axis| axis.kind).collect::<Vec<_>>(),
            [AxisKind::Time, AxisKind::Y, AxisKind::X]
        );
        assert_eq!(found.axes[0].calendar.as_deref(), Some("noleap"));
        assert_eq!(found.crs, Some(Crs::Epsg(4326)));
    }
    let found = with_subject(&climate(&[], &[60.0, 1.0, -60.0]), "g/t", LITTLE, Geometry::from_subject);
    assert_eq!(
        places(&found),
        [Some((15.0, 30.0)), None, Some((0.5, 1.0))],
        "latitudes that are not regular"
    );
    assert_eq!(found.axes[1].unit.as_deref(), Some("degrees_north"));
    // What is not this dimension's coordinate says nothing.
    let other_dimension = document(&[3], "float64", json!({"dimension_names": ["row"]}));
    let packed =
        document(&[3], "float64", json!({"dimension_names": ["lat"], "attributes": {"scale_factor": 2}}));
    let other_length = document(&[2], "float64", json!({"dimension_names": ["lat"]}));
    for lat in [other_dimension, packed, other_length, group(json!({}))] {
        let found = with_subject(
            &climate(&[("g/lat", lat)], &[1.0, 2.0, 3.0]),
            "g/t",
            LITTLE,
            Geometry::from_subject,
        );
        assert_eq!(places(&found)[1], None);
    }
}

#[test]
fn what_counts_as_regular() {
    let of = |values: &[f64], number| regular(values, number).map(|it| (it.first, it.step));
    assert_eq!(of(&[1.0, 2.0, 3.0], NumericType::F64), Some((1.0, 1.0)));
    assert_eq!(of(&[1.0, 2.0009, 3.0], NumericType::F64), Some((1.0, 1.0)));
    assert_eq!(of(&[1.0, 2.0011, 3.0], NumericType::F64), None);
    for values in
        [&[][..], &[1.0], &[1.0, 1.0], &[1.0, f64::NAN, 3.0], &[0.0, f64::INFINITY], &[f64::NAN, 1.0]]
    {
        assert_eq!(of(values, NumericType::F64), None, "{values:?}");
    }
    // Single precision has steps of its own.
    let tenths: Vec<f64> = (0..3600).map(|i| f64::from((f64::from(i) * 0.1) as f32)).collect();
    assert!(regular(&tenths, NumericType::F32).is_some());
    assert_eq!(of(&[1e9, 1e9 + 1.0, 1e9 + 2.0], NumericType::F32), None, "single precision cannot say that");
}

#[test]
fn geotransforms_and_systems() {
    let of = |attributes: Value, of_group: Value| {
        let field =
            document(&[3, 4], "float32", json!({"dimension_names": ["y", "x"], "attributes": attributes}));
        let mapping = document(
            &[],
            "int8",
            json!({"attributes": {"GeoTransform": "500000 10 0 4000000 0 -10", "crs_wkt": "PROJCS[\"a\"]"}}),
        );
        geometry(&[("g", group(of_group)), ("g/a", field), ("g/crs", mapping)], "g/a")
    };
    let none = || json!({});
    let at = vec![Some((3_999_995.0, -10.0)), Some((500_005.0, 10.0))];
    let found = of(json!({"grid_mapping": "crs"}), none());
    assert_eq!((places(&found), found.crs), (at.clone(), Some(Crs::Wkt("PROJCS[\"a\"]".to_owned()))));
    let geozarr = json!({"proj:code": "EPSG:32633", "spatial:transform": [10, 0, 500000, 0, -10, 4000000]});
    for (own, above) in [(geozarr.clone(), none()), (none(), geozarr)] {
        let found = of(own, above);
        assert_eq!((places(&found), found.crs), (at.clone(), Some(Crs::Epsg(32633))));
    }
    let gdal = json!({"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/26711"}, "GeoTransform": [1, 2, 0, 3, 0, 4]});
    assert_eq!(of(gdal, none()).crs, Some(Crs::Epsg(26711)));
    for rotated in [
        json!({"GeoTransform": "0 1 0.1 0 0 1"}),
        json!({"GeoTransform": "0 1 0"}),
        json!({"GeoTransform": "a b c d e f"}),
    ] {
        assert_eq!(places(&of(rotated, none())), [None, None]);
    }
    for wrong in [
        "",
        "EPSG:",
        "EPSG:-1",
        "epsg:99999999999",
        "GEOGCS",
        "DROP TABLE",
        "GEOGCS[\"\u{0}\"]",
        "<a>",
        "EPSG:0",
    ] {
        assert_eq!(of(json!({"spatial_ref": wrong}), none()).crs, None, "{wrong:?}");
    }
    for elsewhere in ["../other/crs", "crs: x y", "", ".", "none"] {
        assert_eq!(of(json!({"grid_mapping": elsewhere}), none()).crs, None, "{elsewhere:?}");
    }
}

#[test]
fn plain_attributes_and_values_without_data() {
    let of = |attributes: Value| {
        geometry(&[("a", document(&[3, 4], "float32", json!({"attributes": attributes})))], "a")
    };
    assert_eq!(places(&of(json!({"scale": [2, 0.5]}))), [Some((0.0, 2.0)), Some((0.0, 0.5))]);
    let found = of(json!({"scale": [2, 0.5], "translation": [1, 1], "units": ["nm", "a\nb"]}));
    assert_eq!(places(&found), [Some((1.0, 2.0)), Some((1.0, 0.5))]);
    assert_eq!((found.axes[0].unit.as_deref(), found.axes[1].unit.as_deref()), (Some("nm"), None));
    for wrong in [
        json!(2),
        json!([2]),
        json!([2, 0]),
        json!(["2", "2"]),
        json!([2, 1, 1]),
        json!(null),
        json!(["inf", 1]),
    ] {
        assert_eq!(places(&of(json!({"scale": wrong}))), [None, None], "{wrong}");
    }
    for (value, expected) in [
        (json!(-9999.0), Some(-9999.0)),
        (json!([7]), Some(7.0)),
        (json!("AAAAAAAAJEA="), Some(10.0)),
        // The element that a reader of floats has of it.
        (json!(u64::MAX), Some(18_446_744_073_709_551_616.0)),
        (json!([1, 2]), Some(1.0)),
        (json!(1e300), None),
        (json!("none"), None),
        (json!({}), None),
        (json!("AAAAAAAAJEA=AAAA"), None),
    ] {
        assert_eq!(of(json!({"_FillValue": value})).no_data, expected, "{value}");
    }
    assert!(of(json!({"_FillValue": "AAAAAAAA+H8="})).no_data.unwrap().is_nan());
    assert_eq!(of(json!({})).no_data, None, "the fill value of missing chunks is a value");
    let long = document(&[3, 4], "uint64", json!({"attributes": {"nodata": u64::MAX}}));
    assert_eq!(geometry(&[("a", long)], "a").no_data, None, "no float has this value");
}

#[test]
fn hostile_attributes_are_left_out() {
    let mut deep = json!(1);
    for _ in 0..50 {
        deep = json!([deep]);
    }
    let many: serde_json::Map<String, Value> =
        (0..10_000).map(|i| (format!("a\n\0\"/%{i}"), json!(i))).collect();
    for hostile in [deep, json!("x".repeat(1 << 20)), json!({"\0": "\n"}), json!(["\"", null]), json!(many)] {
        let attributes = [
            "scale",
            "units",
            "GeoTransform",
            "spatial:transform",
            "_FillValue",
            "multiscales",
            "ome",
            "grid_mapping",
            "crs_wkt",
            "spatial_ref",
            "_CRS",
            "proj:code",
            "proj:wkt2",
            "missing_value",
            "translation",
        ];
        let attributes: Value = attributes
            .iter()
            .map(|name| (name.to_string(), hostile.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let field = document(
            &[3, 4],
            "float32",
            json!({"dimension_names": ["y", "x"], "attributes": attributes.clone()}),
        );
        let found = geometry(&[("g", group(attributes)), ("g/a", field)], "g/a");
        assert_eq!((places(&found), found.crs, found.no_data), (vec![None, None], None, None));
    }
}
