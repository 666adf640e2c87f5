//! The installed languages run the snippets, and the test compares what they read with what was written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::array::{ByteOrder, Layout, Order};
use crate::metadata::DataType;
use crate::metadata::data_type::{Field, TimeUnit};

const SHAPES: [&[u64]; 5] = [&[], &[3], &[2, 3], &[2, 3, 4], &[0, 3]];
/// A name that each language must quote.
const NAME: &str = "it's \"a\" 100% $x\\n ü\n??=`#!.dat";

/// One array in a file.
struct Case {
    data_type: DataType,
    shape: &'static [u64],
    layout: Layout,
    file: String,
}

impl Case {
    fn snippet(&self, language: &str) -> String {
        let descr = self.data_type.numpy_descr(self.layout.byte_order);
        let subject = SnippetSubject::new(&self.file, &self.data_type, &descr, self.shape, self.layout);
        all(&subject)[language].as_str().unwrap().to_owned()
    }

    fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Returns the numbers of the elements in C order, in the order of the file.
    fn file_order(&self) -> Vec<u64> {
        if self.layout.order == Order::C {
            return (0..self.count()).collect();
        }
        let number = |mut position: u64| {
            let mut number = 0;
            let mut step = self.count();
            let mut index = Vec::new();
            for length in self.shape {
                index.push(position % length);
                position /= length;
            }
            for (length, index) in self.shape.iter().zip(index) {
                step /= length;
                number += index * step;
            }
            number
        };
        (0..self.count()).map(number).collect()
    }

    /// Returns the bytes of one element, as served.
    fn element(&self, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in values(&self.data_type, number) {
            bytes.extend(value.bytes(self.layout.byte_order == ByteOrder::Big));
        }
        assert_eq!(bytes.len(), self.data_type.item_size().unwrap());
        bytes
    }

    fn content(&self) -> Vec<u8> {
        self.file_order().into_iter().flat_map(|number| self.element(number)).collect()
    }

    /// Returns the values in C order, as numbers.
    fn numbers(&self, order: impl IntoIterator<Item = u64>) -> Vec<f64> {
        let numbers = |number| values(&self.data_type, number).into_iter().map(|value| value.number());
        order.into_iter().flat_map(numbers).collect()
    }
}

/// A part of an element.
enum Part {
    Integer { value: i128, width: usize },
    Float(f64, usize),
}

impl Part {
    fn bytes(&self, is_big: bool) -> Vec<u8> {
        let mut bytes = match *self {
            Part::Integer { value, width } => value.to_le_bytes()[..width].to_vec(),
            Part::Float(value, 2) => half::f16::from_f64(value).to_le_bytes().to_vec(),
            Part::Float(value, 4) => (value as f32).to_le_bytes().to_vec(),
            Part::Float(value, _) => value.to_le_bytes().to_vec(),
        };
        if is_big {
            bytes.reverse();
        }
        bytes
    }

    fn number(&self) -> f64 {
        match *self {
            Part::Integer { value, .. } => value as f64,
            Part::Float(value, _) => value,
        }
    }
}

/// Returns the parts of the element with this number.
fn values(data_type: &DataType, number: u64) -> Vec<Part> {
    let n = i128::from(number);
    let integer = |value, width| vec![Part::Integer { value, width }];
    match data_type {
        DataType::Bool => integer(n % 2, 1),
        DataType::Int8 => integer(n - 5, 1),
        DataType::Int16 => integer(1500 * (n - 4), 2),
        DataType::Int32 => integer(200_000_000 * (n % 10 - 4), 4),
        DataType::Int64 | DataType::DateTime64(_) => integer(-1 - 3_000_000_000 * (n - 3), 8),
        DataType::UInt8 => integer(255 - n, 1),
        DataType::UInt16 => integer(65_535 - n, 2),
        DataType::UInt32 => integer(4_294_967_295 - n, 4),
        DataType::UInt64 => integer(9_007_199_254_740_991 - n, 8),
        DataType::Float16 => vec![Part::Float(0.5 * number as f64, 2)],
        DataType::Float32 => vec![Part::Float(0.25 * number as f64 - 1.0, 4)],
        DataType::Float64 => vec![Part::Float(0.1 * number as f64 - 0.3, 8)],
        DataType::Complex64 => vec![Part::Float(n as f64, 4), Part::Float(-0.5 - n as f64, 4)],
        DataType::Complex128 => vec![Part::Float(n as f64, 8), Part::Float(-0.1 - n as f64, 8)],
        // "a", "ab" and "abc" in turn, moved on through the alphabet.
        DataType::NullTerminatedBytes(_) | DataType::FixedLengthUtf32(_) => {
            let width = if matches!(data_type, DataType::FixedLengthUtf32(_)) { 4 } else { 1 };
            let letter = |at: i128| if at <= n % 3 { 97 + (n + at) % 26 } else { 0 };
            (0..3).map(|at| Part::Integer { value: letter(at), width }).collect()
        }
        DataType::Raw(bytes) => {
            (0..*bytes).map(|at| Part::Integer { value: n + at as i128, width: 1 }).collect()
        }
        DataType::Struct(fields) => fields
            .iter()
            .flat_map(|field| {
                let count = field.shape.iter().product::<u64>();
                (0..count).flat_map(move |at| values(&field.data_type, number + at))
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn layouts() -> Vec<Layout> {
    let layout = |order| [ByteOrder::Little, ByteOrder::Big].map(|byte_order| Layout { order, byte_order });
    [Order::C, Order::F].into_iter().flat_map(layout).collect()
}

/// Every type in every shape and layout, each in its file.
fn cases(folder: &Path, types: &[DataType]) -> Vec<Case> {
    let mut cases = Vec::new();
    for data_type in types {
        for shape in SHAPES {
            for layout in layouts() {
                let file = match cases.len() {
                    0 => NAME.to_owned(),
                    number => format!("file{number}"),
                };
                let case = Case { data_type: data_type.clone(), shape, layout, file };
                fs::write(folder.join(&case.file), case.content()).unwrap();
                cases.push(case);
            }
        }
    }
    cases
}

fn numbers() -> Vec<DataType> {
    use DataType::*;
    vec![
        Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Complex64,
        Complex128,
    ]
}

/// Runs a program that prints one line per case; `None` if it is not installed.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{program} is needed: {error}");
            eprintln!("SKIPPED: {program} is not installed");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program}: {}\n{}",
        text.lines().last().unwrap_or_default(),
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text.lines().map(|line| line.trim().to_owned()).collect())
}

fn parse(line: &str) -> Vec<f64> {
    let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{word:?} in {line:?}"));
    line.split_whitespace().map(number).collect()
}

fn compare(case: &Case, line: &str, order: impl IntoIterator<Item = u64>) {
    let (found, wanted) = (parse(line), case.numbers(order));
    let Case { data_type, shape, layout, .. } = case;
    assert_eq!(found.len(), wanted.len(), "{data_type:?} {shape:?} {layout:?}");
    for (found, wanted) in found.into_iter().zip(wanted) {
        assert!(
            (found - wanted).abs() <= 1e-12 * wanted.abs(),
            "{found} {wanted} {data_type:?} {shape:?} {layout:?}"
        );
    }
}

#[test]
fn numpy() {
    let folder = tempfile::tempdir().unwrap();
    let mut types = numbers();
    types.extend([
        DataType::Float16,
        DataType::DateTime64(TimeUnit { unit: "ms".into(), scale_factor: 10 }),
        DataType::NullTerminatedBytes(3),
        DataType::FixedLengthUtf32(3),
        DataType::Raw(5),
        DataType::Struct(vec![
            Field { name: "it's".into(), data_type: DataType::Int16, shape: vec![2] },
            Field { name: "y".into(), data_type: DataType::Float64, shape: vec![] },
        ]),
    ]);
    let cases = cases(folder.path(), &types);
    let mut program = String::from("import numpy as np\n");
    for case in &cases {
        let _ = writeln!(program, "x={}", case.snippet("numpy"));
        let _ = writeln!(program, "assert x.shape=={}", shape_literal(case.shape));
        let _ = writeln!(program, "print(x.tobytes('C').hex())");
    }
    fs::write(folder.path().join("run.py"), program).unwrap();
    let python = std::env::var("ZARRFS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = Command::new(&python).args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    if !has_numpy.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "{python} has no NumPy");
        eprintln!("SKIPPED: {python} has no NumPy; ZARRFS_TEST_PYTHON may name one that has");
        return;
    }
    let Some(lines) = run(folder.path(), &python, &["run.py"]) else { return };
    assert_eq!(lines.len(), cases.len());
    for (case, line) in cases.iter().zip(lines) {
        let wanted: Vec<u8> = (0..case.count()).flat_map(|number| case.element(number)).collect();
        let wanted: String = wanted.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(line, wanted, "{:?} {:?} {:?}", case.data_type, case.shape, case.layout);
    }
}

fn shape_literal(shape: &[u64]) -> String {
    let inner: String = shape.iter().map(|length| format!("{length},")).collect();
    format!("({inner})")
}

#[test]
fn matlab_maps_plain_numbers() {
    let snippet = |data_type: DataType, shape: &'static [u64], layout: Layout| {
        let descr = data_type.numpy_descr(layout.byte_order);
        let subject = SnippetSubject::new("it's", &data_type, &descr, shape, layout);
        all(&subject).get("matlab_mapped").map(|snippet| snippet.as_str().unwrap().to_owned())
    };
    let little = Layout { order: Order::C, byte_order: ByteOrder::Little };
    let big = Layout { byte_order: ByteOrder::Big, ..little };
    let map = |inside: &str| Some(format!("m=memmapfile('it''s','Format',{{{inside},'x'}});"));
    let reversed = |inside: &str| map(inside).map(|map| map + " % m.Data.x has the axes reversed");
    assert_eq!(snippet(DataType::Float32, &[2, 3, 4], little), reversed("'single',[4 3 2]"));
    let fortran = Layout { order: Order::F, ..little };
    assert_eq!(snippet(DataType::Float64, &[2, 3], fortran), map("'double',[2 3]"));
    assert_eq!(snippet(DataType::Int16, &[5], little), map("'int16',[5 1]"));
    assert_eq!(snippet(DataType::UInt8, &[], big), map("'uint8',[1 1]"));
    for (data_type, shape, layout) in [
        (DataType::Int16, &[5][..], big),
        (DataType::Int16, &[0, 3], little),
        (DataType::Bool, &[5], little),
        (DataType::Float16, &[5], little),
        (DataType::Complex64, &[5], little),
    ] {
        assert_eq!(snippet(data_type, shape, layout), None);
    }
}

#[test]
#[ignore = "full: needs Octave"]
fn octave_reads_what_matlab_would() {
    let folder = tempfile::tempdir().unwrap();
    let mut types = numbers();
    types.extend([DataType::NullTerminatedBytes(3), DataType::FixedLengthUtf32(3), DataType::Raw(5)]);
    let cases = cases(folder.path(), &types);
    let mut program = String::new();
    for case in &cases {
        let parts = if matches!(case.data_type, DataType::Complex64 | DataType::Complex128) {
            "y=[real(y(:)) imag(y(:))].';"
        } else {
            ""
        };
        // A one-dimensional array with parts has them along its second axis.
        let _ = writeln!(
            program,
            "{}y=double(x);y=permute(y,ndims(y):-1:1);{parts}printf('%.17g ',y(:));printf(\"\\n\");",
            case.snippet("matlab")
        );
    }
    fs::write(folder.path().join("run.m"), program).unwrap();
    let Some(lines) = run(folder.path(), "octave-cli", &["--norc", "run.m"]) else { return };
    assert_eq!(lines.len(), cases.len());
    for (case, line) in cases.iter().zip(lines) {
        compare(case, &line, 0..case.count());
    }
}

#[test]
#[ignore = "full: needs R"]
fn r() {
    let folder = tempfile::tempdir().unwrap();
    let mut types = numbers();
    types.extend([DataType::NullTerminatedBytes(3), DataType::FixedLengthUtf32(3), DataType::Raw(5)]);
    let cases = cases(folder.path(), &types);
    let mut program = String::from("options(warn=2)\n");
    for case in &cases {
        let print = match case.data_type {
            DataType::Complex64 | DataType::Complex128 => "rbind(Re(y),Im(y))",
            DataType::NullTerminatedBytes(_) | DataType::FixedLengthUtf32(_) => {
                "unlist(lapply(as.character(y),function(s)c(utf8ToInt(s),0,0)[1:3]))"
            }
            _ => "as.numeric(y)",
        };
        let _ = writeln!(
            program,
            "{}\ny<-if(is.null(dim(x)))x else as.vector(aperm(x))\ncat(sprintf('%.17g',{print}),'\\n')",
            case.snippet("r")
        );
    }
    fs::write(folder.path().join("run.R"), program).unwrap();
    let Some(lines) = run(folder.path(), "Rscript", &["--vanilla", "run.R"]) else { return };
    assert_eq!(lines.len(), cases.len());
    for (case, line) in cases.iter().zip(lines) {
        compare(case, &line, 0..case.count());
    }
}

#[test]
#[ignore = "full: needs gfortran"]
fn fortran() {
    let folder = tempfile::tempdir().unwrap();
    // Without the unsigned ones, which Fortran does not have.
    let mut types = numbers();
    types.retain(|data_type| !data_type.name().starts_with("uint"));
    types.extend([DataType::NullTerminatedBytes(3), DataType::FixedLengthUtf32(3)]);
    let cases = cases(folder.path(), &types);
    let mut program = String::new();
    let mut calls = String::from("program run\n");
    for (number, case) in cases.iter().enumerate() {
        let printed =
            if matches!(case.data_type, DataType::NullTerminatedBytes(_)) { "ichar(x)" } else { "x" };
        let _ = writeln!(
            program,
            "subroutine s{number}\n{}\nwrite(*,'(*(g0,1x))') {printed}\nend subroutine",
            case.snippet("fortran")
        );
        let _ = writeln!(calls, "call s{number}");
    }
    let _ = writeln!(calls, "end program\n{program}");
    fs::write(folder.path().join("run.f90"), calls).unwrap();
    let compiler = ["-O0", "-std=gnu", "-o", "run", "run.f90"];
    if run(folder.path(), "gfortran", &compiler).is_none() {
        return;
    }
    let lines = run(folder.path(), "./run", &[]).unwrap();
    assert_eq!(lines.len(), cases.len());
    for (case, line) in cases.iter().zip(lines) {
        compare(case, &line, case.file_order());
    }
}

#[test]
fn c() {
    let folder = tempfile::tempdir().unwrap();
    let mut types = numbers();
    types.extend([DataType::NullTerminatedBytes(3), DataType::FixedLengthUtf32(3), DataType::Raw(5)]);
    let mut cases = cases(folder.path(), &types);
    // An empty file has nothing to map; the swapping is left to the reader.
    cases.retain(|case| case.count() > 0 && case.layout.byte_order == ByteOrder::Little);
    let mut program = String::from(
        "#include <fcntl.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <sys/mman.h>\nint main(void){\n",
    );
    for case in &cases {
        let part = match case.data_type {
            DataType::Complex64 => "float",
            DataType::Complex128 => "double",
            DataType::FixedLengthUtf32(_) => "uint32_t",
            _ => "__typeof__(*x)",
        };
        let flat = if part == "__typeof__(*x)" { "T" } else { part };
        let _ = writeln!(program, "{{ {}", case.snippet("c"));
        // Down to the element, whatever the rank.
        let mut element = "*x".to_owned();
        let parts = matches!(case.data_type, DataType::NullTerminatedBytes(_) | DataType::Raw(_));
        for _ in 1..case.shape.len() + usize::from(parts && !case.shape.is_empty()) {
            element = format!("*{element}");
        }
        if parts && case.shape.is_empty() {
            element = "**x".to_owned();
        }
        let _ = writeln!(program, "typedef __typeof__({element}) T; const {flat} *p=(const void*)x;");
        let _ = writeln!(
            program,
            "for(long i=0;i<{};i++)printf(\"%.17g \",(double)p[i]);putchar('\\n');}}",
            case.numbers(case.file_order()).len()
        );
    }
    program.push_str("return 0;}\n");
    fs::write(folder.path().join("run.c"), program).unwrap();
    if run(folder.path(), "cc", &["-std=gnu99", "-trigraphs", "-w", "-o", "run", "run.c"]).is_none() {
        return;
    }
    let lines = run(folder.path(), "./run", &[]).unwrap();
    assert_eq!(lines.len(), cases.len());
    for (case, line) in cases.iter().zip(lines) {
        compare(case, &line, case.file_order());
    }
}

#[test]
fn julia_and_idl_as_their_manuals_have_it() {
    let layout = Layout::default();
    let snippet = |data_type: &DataType, shape: &[u64], file: &str, language: &str| {
        let descr = data_type.numpy_descr(layout.byte_order);
        all(&SnippetSubject::new(file, data_type, &descr, shape, layout))[language]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        snippet(&DataType::Float32, &[12, 180, 360], "temp", "julia"),
        "x=open(f->read!(f,Array{Float32}(undef,360,180,12)),\"temp\");x=ltoh.(x);x=permutedims(x,(3,2,1))"
    );
    assert_eq!(
        snippet(&DataType::Complex64, &[], "a\"$\n", "julia"),
        "x=open(f->read!(f,Array{ComplexF32}(undef)),\"a\\\"\\$\\n\");x=complex.(ltoh.(real.(x)),ltoh.(imag.(x)))"
    );
    assert_eq!(
        snippet(&DataType::Float32, &[12, 180, 360], "it's\n", "idl"),
        "x=read_binary('it''s'+string(10b),data_type=4,data_dims=[360,180,12],endian='little')"
    );
    assert!(snippet(&DataType::Float32, &[0, 3], "t", "idl").starts_with("; the array is empty"));
    assert!(snippet(&DataType::Float32, &[1; 9], "t", "idl").starts_with("; IDL has no arrays"));
    assert!(all(&SnippetSubject::new("t", &DataType::Raw(0), &Value::Null, &[], layout)).is_empty());
}
