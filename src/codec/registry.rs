//! The table of codecs: one line each, by kind, in alphabetical order.
//!
//! A new codec is one file with a [`CodecEntry`] and one line here. Spec: v3 core, "Extension naming"; v2 codec ids
//! are numcodecs'. Uses `metadata`.

use super::{Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context};
use super::{array_to_array, array_to_bytes, bytes_to_bytes, imagecodecs, kerchunk, numcodecs, sound};
use crate::metadata::{CodecFamily, CodecSpec};

/// The table.
const CODECS: &[&CodecEntry] = &[
    &array_to_array::bitround::ENTRY,
    &array_to_array::cast_value::ENTRY,
    &array_to_array::reshape::ENTRY,
    &array_to_array::scale_offset::ENTRY,
    &array_to_array::squeeze::ENTRY,
    &array_to_array::transpose::ENTRY,
    &array_to_bytes::bytes::ENTRY,
    &array_to_bytes::n5_default::ENTRY,
    &array_to_bytes::optional::ENTRY,
    &array_to_bytes::packbits::ENTRY,
    &array_to_bytes::pcodec::ENTRY,
    &array_to_bytes::sharding::ENTRY,
    &array_to_bytes::zfp::ENTRY,
    &bytes_to_bytes::base64::ENTRY,
    &bytes_to_bytes::blosc::ENTRY,
    &bytes_to_bytes::bz2::ENTRY,
    &bytes_to_bytes::checksum::adler32::ENTRY,
    &bytes_to_bytes::checksum::crc32::ENTRY,
    &bytes_to_bytes::checksum::crc32c::ENTRY,
    &bytes_to_bytes::checksum::fletcher32::ENTRY,
    &bytes_to_bytes::checksum::jenkins_lookup3::ENTRY,
    &bytes_to_bytes::conditional::ENTRY,
    &bytes_to_bytes::gzip::ENTRY,
    &bytes_to_bytes::lz4::ENTRY,
    &bytes_to_bytes::lzma::ENTRY,
    &bytes_to_bytes::shuffle::ENTRY,
    &bytes_to_bytes::zlib::ENTRY,
    &bytes_to_bytes::zstd::ENTRY,
    &imagecodecs::delta::ENTRY,
    &imagecodecs::floatpred::ENTRY,
    &imagecodecs::horizontal_delta::ENTRY,
    &imagecodecs::jpeg::ENTRY,
    &imagecodecs::lz4h5::ENTRY,
    &imagecodecs::lzf::ENTRY,
    &imagecodecs::lzw::ENTRY,
    &imagecodecs::packbits::ENTRY,
    &imagecodecs::png::ENTRY,
    &imagecodecs::webp::ENTRY,
    &kerchunk::fill_hdf_strings::ENTRY,
    &kerchunk::grib::ENTRY,
    &kerchunk::record_member::ENTRY,
    &numcodecs::astype::ENTRY,
    &numcodecs::categorize::ENTRY,
    &numcodecs::delta::ENTRY,
    &numcodecs::fixedscaleoffset::ENTRY,
    &numcodecs::packbits::ENTRY,
    &numcodecs::quantize::ENTRY,
    &numcodecs::zfpy::ENTRY,
    &sound::flac::ENTRY,
    &sound::wavpack::ENTRY,
    #[cfg(feature = "sleep-codec")]
    &super::sleep::ENTRY,
];

/// Codecs of the blocks of N5.
const N5_CODECS: &[&CodecEntry] = &[&array_to_bytes::n5_default::ENTRY, &bytes_to_bytes::n5_lz4::ENTRY];

/// Codecs of views.
const VIEW_CODECS: &[&CodecEntry] = &[&array_to_array::unpack::ENTRY, &array_to_bytes::optional::MASK_ENTRY];

/// Returns every codec that documents can name.
pub fn entries() -> impl Iterator<Item = &'static CodecEntry> {
    CODECS.iter().copied()
}

/// Returns the name of a codec without what VirtualiZarr puts before the name of every codec of an HDF5 file, also of those that are
/// not of numcodecs.
fn own_name(name: &str) -> &str {
    match name.strip_prefix("numcodecs.") {
        Some(own) if own.starts_with("imagecodecs_") => own,
        _ => name,
    }
}

/// Returns the codec named `name` in a family's table.
pub fn find(family: CodecFamily, name: &str) -> Option<&'static CodecEntry> {
    let name = own_name(name);
    let entries = match family {
        CodecFamily::View => VIEW_CODECS,
        CodecFamily::N5 => N5_CODECS,
        CodecFamily::V3 | CodecFamily::V2 => CODECS,
    };
    entries.iter().copied().find(|entry| match family {
        CodecFamily::V3 | CodecFamily::View | CodecFamily::N5 => entry.v3.contains(&name),
        CodecFamily::V2 => entry.v2.contains(&name),
    })
}

/// Builds the codec that `spec` describes, for an input. A name that is not in the table is an
/// error that is [`CodecError::unsupported`].
pub fn build(spec: &CodecSpec, input: CodecInput<'_>) -> CodecResult<Codec> {
    let Some(entry) = find(spec.family, &spec.name) else {
        return Err(CodecError::unsupported(format!("codec \"{}\"", spec.name)));
    };
    (entry.build)(&Context {
        family: spec.family,
        name: own_name(&spec.name),
        configuration: &spec.configuration,
        input,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut v3: Vec<&str> = CODECS.iter().flat_map(|entry| entry.v3).copied().collect();
        let mut v2: Vec<&str> = CODECS.iter().flat_map(|entry| entry.v2).copied().collect();
        for names in [&mut v3, &mut v2] {
            names.sort_unstable();
            let total = names.len();
            names.dedup();
            assert_eq!(names.len(), total, "a codec name is in the table twice");
        }
    }
}
