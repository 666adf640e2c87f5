//! Reads as much of Rust as the rules need: text without comments and literals, words, blocks, paths.
//!
//! Uses nothing but the standard library.

/// Returns the code with comments and the insides of literals blanked, line breaks kept.
pub fn without_text(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut code = String::with_capacity(text.len());
    let mut index = 0;
    while index < chars.len() {
        let is_in_word = index > 0 && is_word(at(index - 1));
        let end = match (at(index), at(index + 1)) {
            ('/', '/') => (index..).find(|i| matches!(at(*i), '\n' | '\0')).unwrap(),
            ('/', '*') => end_of_comment(&at, index, chars.len()),
            ('"', _) => end_of_string(&at, index, chars.len()),
            ('r', '"' | '#') if !is_in_word || at(index - 1) == 'b' => {
                end_of_raw_string(&at, index, chars.len())
            }
            ('\'', '\\') => (index + 3..).find(|i| matches!(at(*i), '\'' | '\0')).unwrap() + 1,
            ('\'', _) if at(index + 2) == '\'' => index + 3,
            _ => index,
        };
        if end == index {
            code.push(at(index));
            index += 1;
        }
        while index < end {
            code.push(if at(index) == '\n' { '\n' } else { ' ' });
            index += 1;
        }
    }
    code
}

pub fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn end_of_comment(at: &impl Fn(usize) -> char, start: usize, length: usize) -> usize {
    let (mut index, mut depth) = (start, 0);
    while index < length {
        match (at(index), at(index + 1)) {
            ('/', '*') => (index, depth) = (index + 2, depth + 1),
            ('*', '/') => (index, depth) = (index + 2, depth - 1),
            _ => index += 1,
        }
        if depth == 0 {
            break;
        }
    }
    index
}

fn end_of_string(at: &impl Fn(usize) -> char, start: usize, length: usize) -> usize {
    let mut index = start + 1;
    while index < length && at(index) != '"' {
        index += if at(index) == '\\' { 2 } else { 1 };
    }
    (index + 1).min(length)
}

/// Returns the end of a raw string. `r#name` is not a string and ends where it begins.
fn end_of_raw_string(at: &impl Fn(usize) -> char, start: usize, length: usize) -> usize {
    let hashes = (start + 1..).take_while(|index| at(*index) == '#').count();
    let mut index = start + 1 + hashes;
    if at(index) != '"' {
        return start;
    }
    loop {
        index += 1;
        if index >= length {
            return length;
        }
        if at(index) == '"' && (1..=hashes).all(|offset| at(index + offset) == '#') {
            return index + 1 + hashes;
        }
    }
}

/// Returns where `word` stands as a word of its own.
pub fn occurrences<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    code.match_indices(word).map(|(start, _)| start).filter(move |start| {
        let before = code[..*start].chars().next_back().is_some_and(is_word);
        let after = code[start + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// Returns all words, and where they are.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + code[rest..].find(is_word)?;
        let end = code[start..].find(|char| !is_word(char)).map_or(code.len(), |length| start + length);
        rest = end;
        Some((start, &code[start..end]))
    })
}

pub fn line_of(code: &str, position: usize) -> usize {
    code[..position].matches('\n').count() + 1
}

/// Returns the position behind the block that begins after `start`; `None` where a `;` comes first.
pub fn end_of_block(code: &str, start: usize) -> Option<usize> {
    // `[u8; 4]` in a signature does not end it.
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (offset, char) in code[start..].char_indices() {
        match char {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' if braces <= 1 => return (braces == 1).then_some(start + offset + 1),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the position behind the item, field or statement that begins at `start`, perhaps with attributes.
pub fn end_of_item(code: &str, start: usize) -> usize {
    let mut start = start;
    while let Some(attribute) = code[start..].strip_prefix('#') {
        let end = start + 1 + end_of_brackets(attribute);
        start = end + code[end..].len() - code[end..].trim_start().len();
    }
    let mut visible = &code[start..];
    if let Some(after) = visible.strip_prefix("pub").filter(|after| !after.starts_with(is_word)) {
        let after = after.trim_start();
        visible = &after[if after.starts_with('(') { end_of_brackets(after) } else { 0 }..];
    }
    let mut first_words = words(visible).map(|(_, word)| word);
    let keyword = first_words.next().unwrap_or_default();
    let is_function = keyword == "const" && matches!(first_words.next(), Some("fn" | "unsafe" | "async"));
    // What ends an item of this kind, outside of all brackets.
    let (ends_at_brace, ends_at_comma) = match keyword {
        "use" | "static" | "type" | "let" => (false, false),
        "const" => (is_function, false),
        "fn" | "mod" | "struct" | "enum" | "trait" | "impl" | "union" | "unsafe" | "async"
        | "macro_rules" | "extern" => (true, false),
        _ => (code[start..].starts_with('{'), true),
    };
    let mut depth = 0_usize;
    for (offset, char) in code[start..].char_indices() {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return start + offset,
            '}' if depth == 1 && ends_at_brace => return start + offset + 1,
            ')' | ']' | '}' => depth -= 1,
            ';' if depth == 0 => return start + offset + 1,
            ',' if depth == 0 && ends_at_comma => return start + offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the position behind the bracket that closes the first one in `code`.
fn end_of_brackets(code: &str) -> usize {
    let mut depth = 0_usize;
    for (offset, char) in code.char_indices() {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth <= 1 => return offset + 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns how many `mod name { … }` in this file surround `position`.
pub fn inline_modules(code: &str, position: usize) -> usize {
    let modules = occurrences(code, "mod").take_while(|start| *start < position);
    modules.filter(|start| end_of_block(code, *start).is_some_and(|end| end > position)).count()
}

/// Returns the module of a file in `src`, one segment per name: `a/b/mod.rs` and `a/b.rs` are `["a", "b"]`.
pub fn module_of(path: &str) -> Vec<&str> {
    path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect()
}

/// A path that code uses: where it is, and its segments from the root of the crate.
pub type Use<'a> = (usize, Vec<&'a str>);

/// Returns all paths in the code of a module that begin with `crate`, `zarrfs`, `self` or `super`; `{…}` groups are expanded.
pub fn used_paths<'a>(module: &[&'a str], code: &'a str) -> Vec<Use<'a>> {
    let mut uses = Vec::new();
    for word in ["crate", "zarrfs", "self", "super"] {
        for start in occurrences(code, word) {
            if code[..start].trim_end().ends_with("::") {
                continue;
            }
            let mut base = match word {
                "crate" | "zarrfs" => Vec::new(),
                // The names of inline modules do not matter: nothing outside of them has a path through them.
                _ => [module, &vec![""; inline_modules(code, start)]].concat(),
            };
            let mut rest = &code[start..];
            while let Some(after) = rest.strip_prefix("super") {
                base.pop();
                rest = after.trim_start().strip_prefix("::").unwrap_or(after).trim_start();
            }
            if word != "super" {
                let Some(after) = rest[word.len()..].trim_start().strip_prefix("::") else { continue };
                rest = after;
            }
            uses.extend(expand(&base, rest).into_iter().map(|path| (start, path)));
        }
    }
    uses
}

/// Returns the paths of one use tree below `base`.
fn expand<'a>(base: &[&'a str], tree: &'a str) -> Vec<Vec<&'a str>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return members(group).into_iter().flat_map(|member| expand(base, member)).collect();
    }
    let name = &tree[..tree.find(|char| !is_word(char)).unwrap_or(tree.len())];
    let path = [base, &[name]].concat();
    match tree[name.len()..].trim_start().strip_prefix("::") {
        Some(rest) if !name.is_empty() => expand(&path, rest),
        _ => vec![path],
    }
}

/// Returns the members of a group, from the text after its opening brace.
pub fn members(group: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start) = (Vec::new(), 1, 0);
    for (index, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (char == ',' && depth == 1) || depth == 0 {
            members.push(group[start..index].trim());
            start = index + 1;
        }
        if depth == 0 {
            break;
        }
    }
    members.retain(|member| !member.is_empty());
    members
}
