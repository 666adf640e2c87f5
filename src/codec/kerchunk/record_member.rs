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
        // What is stored are records: filters after this one see their bytes.
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
