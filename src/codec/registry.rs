//! The table of codecs: one line each, in alphabetical order.
//!
//! A new codec is one file with an [`Entry`] and one line here. Spec: v3 core, "Extension naming"; v2 codec ids
//! are numcodecs'. Uses `metadata`.

use super::{Codec, CodecError, CodecResult, Context, Entry, Input};
use crate::metadata::{CodecFamily, CodecSpec};

/// The table.
const CODECS: &[&Entry] = &[
    &super::adler32::ENTRY,
    &super::astype::ENTRY,
    &super::base64::ENTRY,
    &super::bitround::ENTRY,
    &super::blosc::ENTRY,
    &super::bytes::ENTRY,
    &super::bz2::ENTRY,
    &super::cast_value::ENTRY,
    &super::categorize::ENTRY,
    &super::crc32::ENTRY,
    &super::crc32c::ENTRY,
    &super::delta::ENTRY,
    &super::fixedscaleoffset::ENTRY,
    &super::fletcher32::ENTRY,
    &super::gzip::ENTRY,
    &super::jenkins_lookup3::ENTRY,
    &super::lz4::ENTRY,
    &super::lzma::ENTRY,
    &super::numcodecs_packbits::ENTRY,
    &super::packbits::ENTRY,
    &super::pcodec::ENTRY,
    &super::quantize::ENTRY,
    &super::reshape::ENTRY,
    &super::scale_offset::ENTRY,
    &super::sharding_indexed::ENTRY,
    &super::shuffle::ENTRY,
    &super::transpose::ENTRY,
    &super::zfp::ENTRY,
    &super::zfpy::ENTRY,
    &super::zlib::ENTRY,
    &super::zstd::ENTRY,
];

/// Every codec that there is.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    CODECS.iter().copied()
}

/// The codec that answers to `name` in a family's table.
pub fn find(family: CodecFamily, name: &str) -> Option<&'static Entry> {
    CODECS.iter().copied().find(|entry| match family {
        CodecFamily::V3 => entry.v3.contains(&name),
        CodecFamily::V2 => entry.v2.contains(&name),
    })
}

/// Builds the codec that `spec` describes, for what comes in. A name that is not in the table is an
/// error that is [`CodecError::unsupported`].
pub fn build(spec: &CodecSpec, input: Input<'_>) -> CodecResult<Codec> {
    let Some(entry) = find(spec.family, &spec.name) else {
        return Err(CodecError::unsupported(format!("codec \"{}\"", spec.name)));
    };
    (entry.build)(&Context {
        family: spec.family,
        name: &spec.name,
        configuration: &spec.configuration,
        input,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn no_name_is_given_twice() {
        let mut v3: Vec<&str> = CODECS.iter().flat_map(|entry| entry.v3).copied().collect();
        let mut v2: Vec<&str> = CODECS.iter().flat_map(|entry| entry.v2).copied().collect();
        for names in [&mut v3, &mut v2] {
            names.sort_unstable();
            let total = names.len();
            names.dedup();
            assert_eq!(names.len(), total, "a codec name stands twice in the table");
        }
    }
}
