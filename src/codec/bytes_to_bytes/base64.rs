//! `base64`: the bytes as text. v2 id: `base64`.
//!
//! Format: numcodecs `Base64`: RFC 4648's standard alphabet with padding; line breaks and blanks are skipped when
//! decoding. v3 has no registered name for it; `numcodecs.base64` follows the others. Uses nothing else.
//!
//! ```json
//! {"id": "base64"}
//! ```

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::codec::config::Configuration;
use crate::codec::error::check_limit;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.base64"], v2: &["base64"], build };

/// Spare bits of the last digit are ignored, as in Python.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    Configuration::new(context).finish()?;
    Ok(Codec::BytesToBytes(Box::new(Base64)))
}

struct Base64;

impl BytesToBytes for Base64 {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        // This includes room for line breaks.
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let digits: Cow<'_, [u8]> = if encoded.iter().any(u8::is_ascii_whitespace) {
            encoded.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
        } else {
            Cow::Borrowed(encoded)
        };
        if digits.len() / 4 * 3 > limit_bytes.saturating_add(2) {
            let found = digits.len();
            return Err(CodecError::new(format_args!(
                "{found} base64 digits give more than the {limit_bytes} bytes expected"
            )));
        }
        let bytes = ENGINE.decode(&digits).map_err(|error| CodecError::new(format_args!("{error}")))?;
        check_limit(bytes.len(), limit_bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        Ok(ENGINE.encode(decoded).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn as_python_reads_it() {
        assert_eq!(Base64.encode(b"abcd").unwrap(), b"YWJjZA==");
        for text in ["YWJjZA==", "YWJj\nZA==\n", "YWJjZR=="] {
            assert_eq!(Base64.decode(text.as_bytes(), 4).unwrap().len(), 4, "{text}");
        }
        for text in ["YWJjZA", "YWJjZA=", "YW!jZA==", "YWJjZGVm"] {
            assert!(Base64.decode(text.as_bytes(), 4).is_err(), "{text}");
        }
        assert_eq!(&*Base64.decode(b"", 0).unwrap(), b"");
    }
}
