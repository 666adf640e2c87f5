//! The line before the cursor as the shell reads it: words without their quotes. Uses nothing.

/// A shell that asks for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// Takes candidates as they are typed: quoted, from the last character that breaks words.
    Bash,
    /// Quotes candidates itself, and has the folders of a path already.
    Zsh,
    /// Quotes candidates itself.
    Fish,
}

impl Shell {
    /// Returns the shell with this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bash" => Shell::Bash,
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _ => return None,
        })
    }
}

/// The quotes around a place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    None,
    Single,
    Double,
}

/// A line up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The words before the one at the cursor, as the program would get them.
    pub words: Vec<String>,
    /// The word at the cursor, as far as it is typed, without its quotes. A `~` stays as it is.
    pub typed: String,
    /// The quotes at the cursor.
    pub quote: Quote,
}

impl Line {
    /// Reads a line. Returns `None` if it contains more than words and variables, such as the output of another command.
    pub fn read(line: &str, shell: Shell, variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let mut words: Vec<String> = Vec::new();
        let (mut word, mut quote) = (String::new(), Quote::None);
        // Whether the word has not begun yet, and whether its first character is a `~` without quotes.
        let (mut is_start, mut is_home) = (true, false);
        let mut rest = line.chars().peekable();
        while let Some(character) = rest.next() {
            if quote == Quote::None && character.is_ascii_whitespace() {
                if !is_start {
                    words.push(expanded(std::mem::take(&mut word), is_home, variable)?);
                }
                (is_start, is_home) = (true, false);
                continue;
            }
            is_home |= is_start && character == '~';
            is_start = false;
            match (quote, character) {
                (Quote::None, '\'') => quote = Quote::Single,
                (Quote::None, '"') => quote = Quote::Double,
                (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
                (Quote::None, '\\') => word.extend(rest.next()),
                (Quote::Double, '\\') => {
                    word.push(rest.next_if(|next| "$`\"\\".contains(*next)).unwrap_or('\\'));
                }
                (Quote::Single, '\\') if shell == Shell::Fish => {
                    word.push(rest.next_if(|next| "'\\".contains(*next)).unwrap_or('\\'));
                }
                (Quote::None | Quote::Double, '$') => {
                    let is_braced = rest.next_if_eq(&'{').is_some();
                    let is_part = |next: &char| next.is_ascii_alphanumeric() || *next == '_';
                    let name: String = std::iter::from_fn(|| rest.next_if(is_part)).collect();
                    if is_braced {
                        rest.next_if_eq(&'}')?;
                    }
                    word += &variable(&name)?;
                }
                (Quote::None | Quote::Double, '`')
                | (Quote::None, '(' | ')' | '<' | '>' | '|' | '&' | ';') => {
                    return None;
                }
                (_, other) => word.push(other),
            }
        }
        Some(Line { words, typed: word, quote })
    }
}

/// Replaces a `~` at the beginning of a word by the user's home folder.
fn expanded(word: String, is_home: bool, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    match word.strip_prefix('~') {
        Some(rest) if is_home && (rest.is_empty() || rest.starts_with('/')) => Some(variable("HOME")? + rest),
        _ => Some(word),
    }
}

/// Quotes text for bash within these quotes. A `~` at the beginning keeps its meaning if the text is a path below home.
pub fn quoted(text: &str, quote: Quote, is_below_home: bool) -> String {
    let mut quoted = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        match quote {
            Quote::Single if character == '\'' => quoted += "'\\'",
            Quote::Double if "$`\"\\".contains(character) => quoted.push('\\'),
            Quote::None if character == '~' && at == 0 && !is_below_home => quoted.push('\\'),
            Quote::None if character.is_ascii() && !is_plain(character) => quoted.push('\\'),
            _ => {}
        }
        quoted.push(character);
    }
    quoted
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "~/._-+,%".contains(character)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn variable(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/ann".to_owned()),
            "data" => Some("my data".to_owned()),
            _ => None,
        }
    }

    fn read(line: &str) -> Option<(Vec<String>, String, Quote)> {
        Line::read(line, Shell::Bash, &variable).map(|line| (line.words, line.typed, line.quote))
    }

    #[track_caller]
    fn check(line: &str, words: &[&str], typed: &str, quote: Quote) {
        assert_eq!(
            read(line),
            Some((words.iter().map(|word| (*word).to_owned()).collect(), typed.to_owned(), quote))
        );
    }

    #[test]
    fn words_lose_their_quotes() {
        check("zarrfs info a.zarr ", &["zarrfs", "info", "a.zarr"], "", Quote::None);
        check("z  a\\ b 'c d'\"e f\" g\\ h", &["z", "a b", "c de f"], "g h", Quote::None);
        check("z '' 'a\\b' \"\\$ \\x\" 'it", &["z", "", "a\\b", "$ \\x"], "it", Quote::Single);
        check("z \"a b", &["z"], "a b", Quote::Double);
        check("z a\\", &["z"], "a", Quote::None);
    }

    #[test]
    fn variables_and_home_are_expanded() {
        check(
            "z $data/x ${data}y '$data' ~/a \\~/a ~",
            &["z", "my data/x", "my datay", "$data", "/home/ann/a", "~/a"],
            "~",
            Quote::None,
        );
        check("z ~ ~ann/b ~/c", &["z", "/home/ann", "~ann/b"], "~/c", Quote::None);
        for line in
            ["z $(ls) ", "z `ls` ", "z $missing/ ", "z ${data:-x} ", "z a >b", "z a; b", "z \"$(ls)\" "]
        {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn fish_has_escapes_in_single_quotes() {
        let line = Line::read("z 'it\\'s' a", Shell::Fish, &variable).unwrap();
        assert_eq!((line.words, line.typed), (vec!["z".to_owned(), "it's".to_owned()], "a".to_owned()));
    }

    #[test]
    fn quoted_text_is_read_back_unchanged() {
        for text in
            ["plain/a-b_c.d", "a b", "it's", "$x `y` \"z\" \\", "ü=1:2", "~x", "a~", "(a)[0]*?!#;|&<>{}"]
        {
            for (before, quote, after) in
                [("", Quote::None, ""), ("'", Quote::Single, "'"), ("\"", Quote::Double, "\"")]
            {
                let line = format!("{before}{}{after} ", quoted(text, quote, false));
                assert_eq!(read(&line).unwrap().0, [text], "{line}");
            }
        }
        assert_eq!(quoted("~/my mnt", Quote::None, true), "~/my\\ mnt");
    }
}
