//! The directories of an image: one for each plane, and below it one for each smaller level.
//!
//! Spec: TIFF 6.0; Adobe's TIFF technical note 1 (SubIFDs, tag 330); OME-TIFF 6.0, "sub-resolutions". The directory of a plane is followed by the offsets of its
//! SubIFDs and by these, so all planes after the first take the same number of bytes.

use super::image::{OmeImage, OmeLevel};
use super::image_j::{self, HyperstackOrder, PixelScale};
use super::xml;
use crate::formats::geometry::AxisKind;
use crate::formats::tiff::directory::{
    DESCRIPTION, MAX_FIELDS, PlacedField, STRIP_BYTE_COUNTS, STRIP_OFFSETS, TiffEncoding, TiffField,
    TiffWriter,
};
use crate::formats::tiff::ratio;
use crate::metadata::data_type::numeric::NumberClass;

/// The bytes of levels begin at a multiple of this.
const ALIGNMENT: u64 = 4096;
const SUB_IFDS: u16 = 330;
/// The bytes of ImageJ's colour table of a channel, with some for its range.
const IMAGE_J_CHANNEL_BYTES: u64 = 1024;

/// The places of directories and levels in the file.
pub struct PyramidLayout<'a> {
    image: &'a OmeImage,
    writer: TiffWriter,
    /// The fields of the first directory only.
    first_fields: Vec<TiffField>,
    /// The fields of the directory of each plane.
    plane_fields: Vec<TiffField>,
    /// The fields of the directories of each smaller level.
    level_fields: Vec<Vec<TiffField>>,
    /// The zeros after the first plane of the largest level.
    pub gap_bytes: u64,
    /// The offset of each level.
    pub starts: Vec<u64>,
}

/// Returns a limit for the length of the header.
pub fn most_header_bytes(image: &OmeImage) -> u64 {
    let levels = image.levels.len() as u64;
    let channels =
        image.length(AxisKind::Channel).saturating_mul(xml::MAX_CHANNEL_BYTES + IMAGE_J_CHANNEL_BYTES);
    let of_plane = levels.saturating_mul(TiffEncoding::Big.directory_bytes(MAX_FIELDS) + 16);
    image
        .plane_count()
        .saturating_mul(of_plane)
        .saturating_add(channels)
        .saturating_add(xml::MAX_BYTES + image_j::MAX_LABEL_BYTES)
}

impl<'a> PyramidLayout<'a> {
    /// Lays out the file of an image.
    pub fn new(image: &'a OmeImage) -> Self {
        let levels = image.levels.len() as u64;
        let data = image.levels.iter().fold(0u64, |sum, level| sum.saturating_add(level.size_bytes));
        let longest = data.saturating_add(most_header_bytes(image)).saturating_add((levels + 2) * ALIGNMENT);
        let is_big = longest > u64::from(u32::MAX);
        let encoding = if is_big { TiffEncoding::Big } else { TiffEncoding::Classic };
        let writer = TiffWriter { encoding, is_big_endian: image.is_big_endian };
        let image_j = image_j::order(image).filter(|_| !is_big);
        let mut first_fields = vec![TiffField::text(DESCRIPTION, xml::document(image))];
        if let Some(order) = image_j {
            first_fields.push(TiffField::text(DESCRIPTION, image_j::description(image, order)));
            first_fields.extend(image_j::channel_fields(image, order));
        }
        let mut plane_fields =
            image.levels.first().map(|level| fields(image, level, false)).unwrap_or_default();
        let scale = PixelScale::of(image).and_then(|scale| Some([ratio(scale.x)?, ratio(scale.y)?]));
        if let Some([x, y]) = scale {
            plane_fields.extend([
                TiffField::ratio(282, x),
                TiffField::ratio(283, y),
                TiffField::shorts(296, vec![1]),
            ]);
        }
        let level_fields = image.levels.iter().skip(1).map(|level| fields(image, level, true)).collect();
        let gap_bytes = if image_j == Some(HyperstackOrder::SlicesFirst) { ALIGNMENT } else { 0 };
        let mut layout = PyramidLayout {
            image,
            writer,
            first_fields,
            plane_fields,
            level_fields,
            gap_bytes,
            starts: Vec::new(),
        };
        let mut end = layout.header_bytes();
        for (index, level) in image.levels.iter().enumerate() {
            let start = end.next_multiple_of(ALIGNMENT);
            layout.starts.push(start);
            end = start + level.size_bytes + if index == 0 { gap_bytes } else { 0 };
        }
        layout
    }

    fn values_bytes(&self) -> u64 {
        let mut values = Vec::new();
        for field in self.first_fields.iter().chain(&self.plane_fields) {
            self.writer.append_values(&mut values, field);
        }
        values.len() as u64
    }

    /// Returns the bytes of a directory with this many fields.
    fn directory_bytes(&self, fields: usize) -> u64 {
        self.writer.encoding.directory_bytes(fields as u64).next_multiple_of(8)
    }

    /// Returns the bytes of the offsets of SubIFDs outside of their field.
    fn offsets_bytes(&self) -> u64 {
        match self.level_fields.len() as u64 {
            0 | 1 => 0,
            count => (count * self.writer.encoding.word()).next_multiple_of(8),
        }
    }

    fn own_fields(&self) -> usize {
        // Strip offsets and byte counts, and the SubIFDs.
        self.plane_fields.len() + 2 + usize::from(!self.level_fields.is_empty())
    }

    /// Returns the bytes of the directory of a plane and what follows it.
    fn plane_bytes(&self, index: u64) -> u64 {
        let first = if index == 0 { self.first_fields.len() } else { 0 };
        let levels = self.level_fields.iter().map(|fields| self.directory_bytes(fields.len() + 2));
        self.directory_bytes(self.own_fields() + first) + self.offsets_bytes() + levels.sum::<u64>()
    }

    fn header_bytes(&self) -> u64 {
        let planes = self.image.plane_count();
        let begin = self.writer.encoding.file_header_bytes() + self.values_bytes();
        begin + self.plane_bytes(0) + self.plane_bytes(1) * planes.saturating_sub(1)
    }

    /// Returns the bytes before the first level; `None` if they cannot be in memory.
    pub fn header(&self) -> Option<Vec<u8>> {
        let encoding = self.writer.encoding;
        let mut header = vec![0; usize::try_from(encoding.file_header_bytes()).ok()?];
        header.reserve_exact(usize::try_from(self.header_bytes()).ok()?);
        let first: Vec<_> =
            self.first_fields.iter().map(|field| self.writer.append_values(&mut header, field)).collect();
        let own: Vec<_> =
            self.plane_fields.iter().map(|field| self.writer.append_values(&mut header, field)).collect();
        let begin = self.writer.file_header(header.len() as u64);
        header.splice(..begin.len(), begin);
        let planes = self.image.plane_count();
        for index in 0..planes {
            let at = header.len() as u64;
            let mut fields = own.clone();
            if index == 0 {
                fields.extend(&first);
            }
            let next = if index + 1 < planes { at + self.plane_bytes(index) } else { 0 };
            self.append_plane(&mut header, index, &fields, next);
        }
        Some(header)
    }

    fn append_plane(&self, header: &mut Vec<u8>, index: u64, shared: &[PlacedField<'_>], next: u64) {
        let encoding = self.writer.encoding;
        let strips = |level: usize| self.strip(level, index);
        let own = strips(0);
        let count = shared.len() + own.len() + usize::from(!self.level_fields.is_empty());
        let offsets_at = header.len() as u64 + self.directory_bytes(count);
        let mut sub = offsets_at + self.offsets_bytes();
        let mut offsets = Vec::new();
        for level in &self.level_fields {
            offsets.push(sub);
            sub += self.directory_bytes(level.len() + 2);
        }
        let sub_ifds = TiffField::offsets(SUB_IFDS, &offsets, encoding);
        let mut fields: Vec<PlacedField<'_>> = shared.to_vec();
        fields.extend(own.iter().map(|field| PlacedField { field, place: None }));
        if !offsets.is_empty() {
            let place = (self.offsets_bytes() > 0).then_some(offsets_at);
            fields.push(PlacedField { field: &sub_ifds, place });
        }
        self.writer.append_directory(header, fields, next);
        if self.offsets_bytes() > 0 {
            self.writer.append_values(header, &sub_ifds);
        }
        for (level, shared) in self.level_fields.iter().enumerate() {
            let own = strips(level + 1);
            let fields = shared.iter().chain(&own).map(|field| PlacedField { field, place: None });
            self.writer.append_directory(header, fields.collect(), 0);
        }
    }

    /// Returns the fields of the one strip of a plane.
    fn strip(&self, level: usize, index: u64) -> [TiffField; 2] {
        let of_plane = self.image.levels.get(level).map_or(0, |level| self.image.plane_bytes(level));
        let gap = if level == 0 && index > 0 { self.gap_bytes } else { 0 };
        let offset = self.starts.get(level).copied().unwrap_or(0) + index * of_plane + gap;
        let encoding = self.writer.encoding;
        [
            TiffField::offsets(STRIP_OFFSETS, &[offset], encoding),
            TiffField::offsets(STRIP_BYTE_COUNTS, &[of_plane], encoding),
        ]
    }
}

/// Returns the fields of a directory that are the same for all planes of a level. Their values fit into them.
fn fields(image: &OmeImage, level: &OmeLevel, is_reduced: bool) -> Vec<TiffField> {
    let sample_format = match image.number.class() {
        NumberClass::Bool | NumberClass::Unsigned => 1,
        NumberClass::Signed => 2,
        NumberClass::Float => 3,
        NumberClass::Complex => 6,
    };
    vec![
        TiffField::long(254, u64::from(is_reduced)),
        TiffField::long(256, level.width),
        TiffField::long(257, level.height),
        TiffField::shorts(258, vec![image.number.size() as u16 * 8]),
        TiffField::shorts(259, vec![1]),
        TiffField::shorts(262, vec![1]),
        TiffField::shorts(277, vec![1]),
        TiffField::long(278, level.height),
        TiffField::shorts(284, vec![1]),
        TiffField::shorts(339, vec![sample_format]),
    ]
}
