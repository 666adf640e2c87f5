//! `record_member`: one member of stored records.
//!
//! Format: kerchunk `RecordArrayMember`. Uses `read_only`.
//!
//! ```json
//! {"id": "record_member", "member": "value", "dtype": [["id", "<i4"], ["value", ">f8"]]}
//! ```

use super::read_only::{ItemReader, ReadOnlyFilter};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize, Items};
use crate::metadata::{DataType, Dtype, parse_dtype_v2};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &[], v2: &["record_member"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let (size, item_size) = context.bytes()?;
    let mut configuration = Configuration::new(context);
    let member = configuration.string("member")?;
    let member = configuration.require("member", member)?;
    let dtype = configuration.value("dtype");
    let dtype = configuration.require("dtype", dtype)?;
    let dtype = parse_dtype_v2(dtype).map_err(|fault| configuration.error("dtype", fault))?;
    let Dtype::Fixed(records) = dtype else {
        return Err(configuration.error("dtype", "must be records of a fixed size"));
    };
    configuration.finish()?;
    let DataType::Struct(fields) = &records.data_type else {
        return Err(CodecError::new("codec \"record_member\": \"dtype\" has no members"));
    };
    let mut offset = 0;
    let size_of = |data_type: Option<usize>| {
        data_type.ok_or_else(|| CodecError::unsupported("records of no fixed size"))
    };
    for field in fields {
        let length = size_of(field.size())?;
        if field.name != member {
            offset += length;
            continue;
        }
        if length != item_size {
            return Err(CodecError::new(format_args!(
                "codec \"record_member\": \"member\" has {length} bytes, but an element of the array {item_size}"
            )));
        }
        let reader = RecordMember { record_bytes: size_of(records.data_type.item_size())?, offset, length };
        let count = size.limit_bytes() / item_size.max(1) as u64;
        if let EncodedSize::Exact(bytes) = size
            && !bytes.is_multiple_of(item_size.max(1) as u64)
        {
            return Err(CodecError::new(
                "codec \"record_member\": a chunk is not a whole number of elements",
            ));
        }
        // Records are stored, so filters after this one see the bytes of whole records.
        let items =
            Items { shape: vec![count], data_type: DataType::Raw(reader.record_bytes), is_big_endian: false };
        return Ok(Codec::BytesToBytes(Box::new(ReadOnlyFilter { reader, items })));
    }
    Err(CodecError::new(format_args!(
        "codec \"record_member\": \"member\" is \"{member}\", which the records do not have"
    )))
}

struct RecordMember {
    record_bytes: usize,
    /// Where the member begins.
    offset: usize,
    length: usize,
}

impl ItemReader for RecordMember {
    fn stored_bytes(&self) -> usize {
        self.record_bytes
    }

    fn element_bytes(&self) -> usize {
        self.length
    }

    fn read(&self, stored: &[u8], element: &mut [u8]) -> CodecResult<()> {
        let member = stored.get(self.offset..self.offset + self.length);
        element.copy_from_slice(member.ok_or_else(|| CodecError::new("a record is too short"))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{BytesToBytes, CodecInput, registry};
    use crate::metadata::{CodecFamily, CodecSpec};
    use serde_json::json;

    fn codec(member: &str, item_size: usize) -> CodecResult<Box<dyn BytesToBytes>> {
        let configuration =
            json!({"member": member, "dtype": [["x", "<i4"], ["y", ">u2", [2]], ["z", "|u1"]]});
        let spec = CodecSpec {
            family: CodecFamily::V2,
            name: "record_member".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "filters[0]".to_owned(),
        };
        let size = EncodedSize::Exact(3 * item_size as u64);
        match registry::build(&spec, CodecInput::Bytes { size, item_size, items: None })? {
            Codec::BytesToBytes(codec) => Ok(codec),
            _ => panic!("not bytes to bytes"),
        }
    }

    #[test]
    fn one_member_of_each_record() {
        let records: Vec<u8> = (0..27).collect();
        let middle = codec("y", 4).unwrap();
        assert_eq!(&*middle.decode(&records, 12).unwrap(), [4, 5, 6, 7, 13, 14, 15, 16, 22, 23, 24, 25]);
        assert_eq!(middle.encoded_size(EncodedSize::Exact(12)), EncodedSize::Exact(27));
        assert_eq!(&*codec("z", 1).unwrap().decode(&records, 3).unwrap(), [8, 17, 26]);
        assert!(middle.decode(&records[..26], 12).is_err() && middle.decode(&records, 11).is_err());
        assert!(middle.encode(&[0; 12]).unwrap_err().is_unsupported);
    }

    #[test]
    fn members_that_do_not_fit_are_refused() {
        for (member, item_size, reason) in [("w", 4, "do not have"), ("x", 2, "has 4 bytes")] {
            let error = codec(member, item_size).err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
