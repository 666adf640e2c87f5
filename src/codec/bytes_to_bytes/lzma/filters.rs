//! The filter chains of lzma: `"filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 6, "dict_size": 65536}]`.
//!
//! Members and numbers are those of Python's `lzma` module: `id` 0x4000000000000001 LZMA1, 0x21 LZMA2, 3 delta (`dist`
//! 1 to 256), 4 to 11 the branch converters x86, PowerPC, IA-64, ARM, ARM-Thumb, SPARC, ARM64, RISC-V (`start_offset`).
//! Uses `config`.

use liblzma::stream::{Filters, LzmaOptions, MatchFinder, Mode, PRESET_LEVEL_MASK};
use serde_json::{Map, Value};

use crate::codec::config::Configuration;
use crate::codec::{CodecError, CodecResult};

/// The most that one decoder may allocate: room for a dictionary of 1 GiB, 16 times that of the highest preset.
pub(super) const MEMORY_LIMIT_BYTES: u64 = (1 << 30) + (1 << 20);
/// Filters that liblzma takes in one chain.
const MAX_FILTERS: usize = 4;
/// The smallest dictionary.
const MIN_DICT: u32 = 4096;
const LZMA1: u64 = 0x4000_0000_0000_0001;
const LZMA2: u64 = 0x21;
const DELTA: u64 = 3;
const BRANCH_CONVERTERS: std::ops::RangeInclusive<u64> = 4..=11;

/// One filter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    Lzma(LzmaFilter),
    /// Encoded properties: the distance less 1.
    Delta(u8),
    /// Which converter, and the offset that it starts at.
    Branch(u64, u32),
}

/// LZMA1 or LZMA2 with what differs from its preset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LzmaFilter {
    is_lzma2: bool,
    /// A level from 0 to 9, perhaps with the flag for "extreme".
    preset: u32,
    dict_size: Option<u32>,
    lc: Option<u32>,
    lp: Option<u32>,
    pb: Option<u32>,
    mode: Option<u32>,
    nice_len: Option<u32>,
    mf: Option<u32>,
    depth: Option<u32>,
}

/// A chain of filters, as it is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterChain(Vec<Filter>);

/// Binary logarithms of the dictionary sizes of the presets 0 to 9.
const PRESET_DICT_LOG2: [u32; 10] = [18, 20, 21, 22, 22, 23, 23, 24, 25, 26];

/// Reads the member `filters`.
pub fn read_filters(configuration: &mut Configuration<'_>) -> CodecResult<Option<FilterChain>> {
    let Some(list) = configuration.list("filters")? else { return Ok(None) };
    if list.is_empty() || list.len() > MAX_FILTERS {
        return Err(configuration.error("filters", format_args!("must be a list of 1 to {MAX_FILTERS}")));
    }
    let read = |item: &Value| match item.as_object() {
        Some(members) => read_filter(members).map_err(|reason| configuration.error("filters", reason)),
        None => Err(configuration.error("filters", format_args!("holds {item}, which is not an object"))),
    };
    let filters: Vec<Filter> = list.iter().map(read).collect::<CodecResult<_>>()?;
    Ok(Some(FilterChain(filters)))
}

/// Reads one filter. The error says what is wrong with it.
fn read_filter(members: &Map<String, Value>) -> Result<Filter, String> {
    let number = |key: &str| match members.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| format!("has \"{key}\" {value}")),
    };
    let small = |key: &str| match number(key)?.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(format!("has a \"{key}\" that is too large")),
    };
    let known = |keys: &[&str]| match members.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err(format!("has a filter with \"{key}\", which this program does not know")),
        None => Ok(()),
    };
    match number("id")?.ok_or("has a filter without \"id\"")? {
        DELTA => {
            known(&["id", "dist"])?;
            match number("dist")?.unwrap_or(1).checked_sub(1).map(u8::try_from) {
                Some(Ok(distance)) => Ok(Filter::Delta(distance)),
                _ => Err("has a \"dist\" that is not from 1 to 256".to_owned()),
            }
        }
        id if BRANCH_CONVERTERS.contains(&id) => {
            known(&["id", "start_offset"])?;
            Ok(Filter::Branch(id, small("start_offset")?.unwrap_or(0)))
        }
        id @ (LZMA1 | LZMA2) => {
            known(&["id", "preset", "dict_size", "lc", "lp", "pb", "mode", "nice_len", "mf", "depth"])?;
            let dict_size = small("dict_size")?;
            if dict_size.is_some_and(|bytes| u64::from(bytes) > MEMORY_LIMIT_BYTES) {
                return Err("has a \"dict_size\" beyond 1 GiB".to_owned());
            }
            Ok(Filter::Lzma(LzmaFilter {
                is_lzma2: id == LZMA2,
                preset: small("preset")?.unwrap_or(liblzma::stream::PRESET_DEFAULT),
                dict_size,
                lc: small("lc")?,
                lp: small("lp")?,
                pb: small("pb")?,
                mode: small("mode")?,
                nice_len: small("nice_len")?,
                mf: small("mf")?,
                depth: small("depth")?,
            }))
        }
        id => Err(format!("has a filter with \"id\" {id}, which liblzma does not know")),
    }
}

impl LzmaFilter {
    /// Returns the options, with a dictionary of at most `max_dict` bytes (and at least the smallest possible).
    fn options(&self, max_dict: u32) -> CodecResult<LzmaOptions> {
        let wrong = |key: &str| CodecError::new(format_args!("a filter's \"{key}\" is out of range"));
        let mut options = LzmaOptions::new_preset(self.preset).map_err(|_| wrong("preset"))?;
        let level = usize::try_from(self.preset & PRESET_LEVEL_MASK).unwrap_or(usize::MAX);
        let dict_log2 = PRESET_DICT_LOG2.get(level).ok_or_else(|| wrong("preset"))?;
        let dict_size = self.dict_size.unwrap_or(1 << dict_log2);
        options.dict_size(dict_size.min(max_dict.max(MIN_DICT)));
        self.lc.map(|bits| options.literal_context_bits(bits));
        self.lp.map(|bits| options.literal_position_bits(bits));
        self.pb.map(|bits| options.position_bits(bits));
        self.nice_len.map(|length| options.nice_len(length));
        self.depth.map(|depth| options.depth(depth));
        match self.mode {
            None => &mut options,
            Some(1) => options.mode(Mode::Fast),
            Some(2) => options.mode(Mode::Normal),
            Some(_) => return Err(wrong("mode")),
        };
        match self.mf {
            None => &mut options,
            Some(0x03) => options.match_finder(MatchFinder::HashChain3),
            Some(0x04) => options.match_finder(MatchFinder::HashChain4),
            Some(0x12) => options.match_finder(MatchFinder::BinaryTree2),
            Some(0x13) => options.match_finder(MatchFinder::BinaryTree3),
            Some(0x14) => options.match_finder(MatchFinder::BinaryTree4),
            Some(_) => return Err(wrong("mf")),
        };
        Ok(options)
    }
}

impl FilterChain {
    /// Returns the default chain of the formats other than raw: LZMA2 or LZMA1 with a preset.
    pub fn from_preset(preset: u32, is_lzma2: bool) -> FilterChain {
        FilterChain(vec![Filter::Lzma(LzmaFilter { is_lzma2, preset, ..LzmaFilter::default() })])
    }

    /// Builds liblzma's chain, with dictionaries of at most `max_dict` bytes. The coder that gets it checks whether it
    /// is possible.
    pub fn build(&self, max_dict: u32) -> CodecResult<Filters> {
        let failed = |error: liblzma::stream::Error| CodecError::new(format_args!("lzma filters: {error}"));
        let mut chain = Filters::new();
        for filter in &self.0 {
            match filter {
                Filter::Lzma(lzma) if lzma.is_lzma2 => &mut *chain.lzma2(&lzma.options(max_dict)?),
                Filter::Lzma(lzma) => chain.lzma1(&lzma.options(max_dict)?),
                Filter::Delta(distance) => chain.delta_properties(&[*distance]).map_err(failed)?,
                Filter::Branch(id, start) => {
                    let start = start.to_le_bytes();
                    match id {
                        4 => chain.x86_properties(&start),
                        5 => chain.powerpc_properties(&start),
                        6 => chain.ia64_properties(&start),
                        7 => chain.arm_properties(&start),
                        8 => chain.arm_thumb_properties(&start),
                        9 => chain.sparc_properties(&start),
                        10 => chain.arm64_properties(&start),
                        _ => chain.riscv_properties(&start),
                    }
                    .map_err(failed)?
                }
            };
        }
        Ok(chain)
    }

    /// Returns the options of the one filter that the .lzma format takes.
    pub fn lzma1_options(&self, max_dict: u32) -> CodecResult<LzmaOptions> {
        match self.0.as_slice() {
            [Filter::Lzma(lzma)] if !lzma.is_lzma2 => lzma.options(max_dict),
            _ => Err(CodecError::new("\"format\" 2 takes exactly one filter, LZMA1")),
        }
    }
}
