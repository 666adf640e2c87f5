//! The process that has opened a file. Uses nothing.

use std::fs;

/// The longest name of a program that is recorded. The kernel's names have 15 bytes.
const MAX_NAME_BYTES: usize = 64;

/// Who has opened a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opener {
    /// The user; `None` if unknown.
    pub user: Option<u32>,
    /// The process, 0 if unknown, as in another container.
    pub process: u32,
    /// The name of its program, as the kernel has it. The program chooses it, so it may be any text.
    pub program: String,
}

impl Opener {
    /// Returns the opener for a process of a user, 0 if unknown.
    pub fn new(user: u32, process: u32) -> Self {
        let name =
            if process == 0 { Err(()) } else { fs::read(format!("/proc/{process}/comm")).map_err(drop) };
        let name = name.unwrap_or_default();
        let name = name.strip_suffix(b"\n").unwrap_or(&name);
        let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        Opener { user: Some(user), process, program: String::from_utf8_lossy(name).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_names() {
        let opener = Opener::new(7, std::process::id());
        assert!(!opener.program.is_empty() && !opener.program.contains('\n'), "{opener:?}");
        assert_eq!(Opener::new(7, 0), Opener { user: Some(7), ..Opener::default() });
    }
}
