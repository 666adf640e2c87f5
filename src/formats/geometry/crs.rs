//! The coordinate reference system of an array.
//!
//! Spec: CF conventions, section 5.6 (`grid_mapping`, `crs_wkt`), rioxarray's and GDAL's `spatial_ref`, GDAL's `_CRS`, GeoZarr's
//! `proj:code` and `proj:wkt2`. A grid mapping with only parameters is ignored. X and Y axes in degrees east and north
//! without a grid mapping are WGS 84, as for GDAL and CDO.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::axis::{Axis, AxisKind, text};
use super::source::GeometrySource;
use crate::hierarchy::Node;

/// A coordinate reference system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crs {
    /// A number in the EPSG data set.
    Epsg(u32),
    /// Well-known text (version 1 or 2).
    Wkt(String),
}

/// The longest well-known text.
const MAX_WKT_BYTES: usize = 64 << 10;

impl Crs {
    /// Returns the definition as GDAL reads it.
    pub fn definition(&self) -> String {
        match self {
            Crs::Epsg(code) => format!("EPSG:{code}"),
            Crs::Wkt(text) => text.clone(),
        }
    }

    /// Reads a code such as `EPSG:4326`.
    fn parse_code(text: &str) -> Option<Self> {
        let digits = text.trim();
        let digits = match digits.get(..5) {
            Some(prefix) if prefix.eq_ignore_ascii_case("EPSG:") => digits.get(5..)?,
            _ => return None,
        };
        digits.parse().ok().filter(|&code| code > 0).map(Crs::Epsg)
    }

    fn parse_wkt(text: &str) -> Option<Self> {
        let text = text.trim();
        let words = [
            "GEOGCS",
            "PROJCS",
            "LOCAL_CS",
            "COMPD_CS",
            "GEOGCRS",
            "GEODCRS",
            "PROJCRS",
            "COMPOUNDCRS",
            "BOUNDCRS",
            "ENGCRS",
        ];
        let is_wkt = words
            .iter()
            .any(|word| text.strip_prefix(word).is_some_and(|rest| rest.trim_start().starts_with('[')));
        // Line breaks have no meaning in it; other control characters are not text.
        let line = text.replace(['\r', '\n', '\t'], " ");
        let is_plain = text.len() <= MAX_WKT_BYTES && !line.chars().any(char::is_control);
        (is_wkt && is_plain).then_some(Crs::Wkt(line))
    }

    /// Returns whether a text defines a system in a known form.
    pub fn is_known(text: &str) -> bool {
        Crs::parse(text).is_some()
    }

    /// Reads a text in either form.
    fn parse(text: &str) -> Option<Self> {
        Crs::parse_code(text).or_else(|| Crs::parse_wkt(text))
    }
}

/// Returns the array that describes the grid of the source: its attribute `grid_mapping` names it, and it is in the same group.
pub(super) fn grid_mapping(source: &GeometrySource<'_>) -> Option<Arc<Node>> {
    let (_, node) = source.sibling(text(&source.metadata.attributes, "grid_mapping")?)?;
    matches!(&*node, Node::Array { .. }).then_some(node)
}

/// Returns the system of an array with these axes.
pub(super) fn find(source: &GeometrySource<'_>, axes: &[Axis]) -> Option<Crs> {
    let attributes = &source.metadata.attributes;
    if attributes.contains_key("grid_mapping") {
        return match &*grid_mapping(source)? {
            Node::Array { metadata, .. } => crs_in_attributes(&metadata.attributes),
            _ => None,
        };
    }
    let of_group = || match &*source.group_attributes()? {
        Node::Group { metadata, .. } => geozarr_crs(&metadata.attributes),
        _ => None,
    };
    crs_in_attributes(attributes).or_else(of_group).or_else(|| {
        let has = |kind, begin: &str| {
            let is_it = |axis: &Axis| {
                let unit = axis.unit.as_deref().unwrap_or_default();
                axis.kind == kind && unit.starts_with("degree") && unit.contains(begin)
            };
            axes.iter().any(is_it)
        };
        let is_geographic = has(AxisKind::X, "east") && has(AxisKind::Y, "north");
        is_geographic.then_some(Crs::Epsg(4326))
    })
}

fn crs_in_attributes(attributes: &Map<String, Value>) -> Option<Crs> {
    let named = ["crs_wkt", "spatial_ref"].iter().find_map(|name| Crs::parse(text(attributes, name)?));
    named.or_else(|| geozarr_crs(attributes)).or_else(|| gdal_crs(attributes.get("_CRS")?))
}

fn geozarr_crs(attributes: &Map<String, Value>) -> Option<Crs> {
    let parse_code = || Crs::parse_code(text(attributes, "proj:code")?);
    parse_code().or_else(|| Crs::parse_wkt(text(attributes, "proj:wkt2")?))
}

/// Reads `{"url": "http://www.opengis.net/def/crs/EPSG/0/26711", "wkt": "…"}`.
fn gdal_crs(value: &Value) -> Option<Crs> {
    let of_url = || {
        let code = value.get("url")?.as_str()?.strip_prefix("http://www.opengis.net/def/crs/EPSG/0/")?;
        Crs::parse_code(&format!("EPSG:{code}"))
    };
    of_url().or_else(|| Crs::parse_wkt(value.get("wkt")?.as_str()?))
}
