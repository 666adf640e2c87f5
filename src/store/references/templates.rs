//! Templates in URLs, as in kerchunk's specification: `{{u}}`, `{{f(c='text')}}`, `{{(i + 1) * 1000}}`.
//!
//! Jinja is a programming language. This is the part that references use: names, numbers, texts, `+ - * // % ~`, calls of
//! templates with named arguments, and `'%03d' % i`. Uses nothing. Invariant: the depth of a template is limited, and the
//! length of its result at each step, so that no template takes much time or memory.
//!
//! The crate minijinja (2.24) runs on fuel, which does not bound memory: with 10,000 units, `{{ 'a' * 100000000 }}` makes 100 MB, and
//! doubling a text 25 times takes 670 MB. It does not have `'%03d' % i`, and adds 0.8 MB to the program.

use std::collections::HashMap;

use serde_json::Value as Json;

/// The longest text that a template makes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The deepest expression: of parentheses, signs and calls.
const MAX_DEPTH: usize = 24;
/// The most parts of one template, and arguments of a call.
const MAX_PARTS: usize = 256;

/// The value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        }
    }
}

#[derive(Clone, Debug)]
enum Expression {
    Constant(Value),
    Name(String),
    Call(String, Vec<(String, Expression)>),
    Operation(char, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Debug)]
enum TextPart {
    Text(String),
    Expression(Expression),
}

/// A text with expressions in it.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<TextPart>);

/// Named templates.
#[derive(Default)]
pub(super) struct Templates(HashMap<String, Template>);

/// Names with values, the later ones first.
pub(super) type Variables<'a> = [(&'a str, Value)];

impl Templates {
    /// Parses the member `templates`.
    pub(super) fn parse(document: &Json) -> Result<Self, String> {
        let Some(members) = document.as_object() else {
            return Err("'templates' is not an object".to_owned());
        };
        let mut templates = HashMap::new();
        for (name, text) in members {
            let wrong = |reason: &str| format!("the template '{name}': {reason}");
            let text = text.as_str().ok_or_else(|| wrong("is not a text"))?;
            templates.insert(name.clone(), Template::parse(text).map_err(|reason| wrong(&reason))?);
        }
        Ok(Templates(templates))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Template {
    /// Parses a text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.contains("{%") {
            return Err("has statements of Jinja ({% … %}), which are not supported".to_owned());
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (expression, after) = after.split_once("}}").ok_or("'{{' without '}}'")?;
            parts.push(TextPart::Text(before.to_owned()));
            parts.push(TextPart::Expression(parse_expression(expression)?));
            if parts.len() > MAX_PARTS {
                return Err(format!("has more than {MAX_PARTS} parts"));
            }
            rest = after;
        }
        parts.push(TextPart::Text(rest.to_owned()));
        Ok(Template(parts))
    }

    /// Returns the text with the values in it.
    pub(super) fn render(&self, templates: &Templates, variables: &Variables<'_>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TextPart::Text(part) => text.push_str(part),
                TextPart::Expression(expression) => {
                    text.push_str(&evaluate(expression, templates, variables)?.text());
                }
            }
            if text.len() > MAX_TEXT_BYTES {
                return Err(format!("makes more than {MAX_TEXT_BYTES} bytes"));
            }
        }
        Ok(text)
    }
}

fn evaluate(
    expression: &Expression,
    templates: &Templates,
    variables: &Variables<'_>,
) -> Result<Value, String> {
    match expression {
        Expression::Constant(value) => Ok(value.clone()),
        Expression::Name(name) => {
            if let Some((_, value)) = variables.iter().find(|(known, _)| known == name) {
                return Ok(value.clone());
            }
            let template = templates.0.get(name).ok_or_else(|| format!("nothing is named '{name}'"))?;
            // A template with expressions in it is a function.
            template.render(&Templates::default(), &[]).map(Value::Text)
        }
        Expression::Call(name, arguments) => {
            let template = templates.0.get(name).ok_or_else(|| format!("no template is named '{name}'"))?;
            let mut values = Vec::with_capacity(arguments.len());
            for (name, argument) in arguments {
                values.push((name.as_str(), evaluate(argument, templates, variables)?));
            }
            template.render(&Templates::default(), &values).map(Value::Text)
        }
        Expression::Operation(operator, left, right) => {
            let (left, right) =
                (evaluate(left, templates, variables)?, evaluate(right, templates, variables)?);
            apply(*operator, &left, &right)
        }
    }
}

fn apply(operator: char, left: &Value, right: &Value) -> Result<Value, String> {
    let overflow = || format!("{} {operator} {} is not a number of 64 bits", left.text(), right.text());
    match (operator, left, right) {
        ('~', _, _) | ('+', Value::Text(_), Value::Text(_)) => {
            let text = left.text() + &right.text();
            if text.len() > MAX_TEXT_BYTES {
                return Err(format!("makes more than {MAX_TEXT_BYTES} bytes"));
            }
            Ok(Value::Text(text))
        }
        ('%', Value::Text(format), Value::Number(number)) => formatted(format, *number),
        (_, Value::Number(left), Value::Number(right)) => match operator {
            '+' => left.checked_add(*right),
            '-' => left.checked_sub(*right),
            '*' => left.checked_mul(*right),
            // As in Python, division rounds towards minus infinity.
            '/' => left.checked_div_euclid(*right).filter(|_| *right > 0),
            _ => left.checked_rem_euclid(*right).filter(|_| *right > 0),
        }
        .map(Value::Number)
        .ok_or_else(overflow),
        _ => Err(format!("'{operator}' does not take a text")),
    }
}

/// Formats a number, as in `'%03d' % 7`.
fn formatted(format: &str, number: i64) -> Result<Value, String> {
    let unsupported = || format!("'{format}' is not supported; '%d' and '%03d' are");
    let (before, rest) = format.split_once('%').ok_or_else(unsupported)?;
    let (width, after) = rest.split_once('d').ok_or_else(unsupported)?;
    let is_width = width.is_empty() || (width.len() <= 3 && width.starts_with('0'));
    let width = if width.is_empty() { Some(0) } else { width.parse::<usize>().ok() };
    match width.filter(|_| is_width && !after.contains('%')) {
        Some(width) => Ok(Value::Text(format!("{before}{number:0width$}{after}"))),
        None => Err(unsupported()),
    }
}

fn parse_expression(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { text, left: text };
    let expression = parser.sum(0)?;
    if parser.next().is_some() {
        return Err(parser.unexpected());
    }
    Ok(expression)
}

/// The rest of an expression that is being parsed.
struct Parser<'a> {
    text: &'a str,
    left: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<char> {
        self.left = self.left.trim_start();
        self.left.chars().next()
    }

    fn take(&mut self, text: &str) -> bool {
        self.left = self.left.trim_start();
        match self.left.strip_prefix(text) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    fn take_while(&mut self, test: impl Fn(char) -> bool) -> &'a str {
        let end = self.left.find(|c: char| !test(c)).unwrap_or(self.left.len());
        let (taken, left) = self.left.split_at(end);
        self.left = left;
        taken
    }

    fn unexpected(&self) -> String {
        let text: String = self.text.chars().take(100).collect();
        format!(
            "{{{{{text}}}}} is not supported: names, numbers, texts, + - * // % ~ and calls of templates are"
        )
    }

    fn sum(&mut self, depth: usize) -> Result<Expression, String> {
        let mut left = self.product(depth)?;
        let mut count = 0;
        while let Some(operator @ ('+' | '-' | '~')) = self.next() {
            self.left = &self.left[1..];
            let right = self.product(depth)?;
            left = Expression::Operation(operator, Box::new(left), Box::new(right));
            count += 1;
            self.check_count(depth + count)?;
        }
        Ok(left)
    }

    fn product(&mut self, depth: usize) -> Result<Expression, String> {
        let mut left = self.factor(depth)?;
        let mut count = 0;
        loop {
            let operator = match self.next() {
                Some('*') => '*',
                Some('%') => '%',
                Some('/') if self.left.starts_with("//") => '/',
                _ => return Ok(left),
            };
            self.left = &self.left[if operator == '/' { 2 } else { 1 }..];
            let right = self.factor(depth)?;
            left = Expression::Operation(operator, Box::new(left), Box::new(right));
            count += 1;
            self.check_count(depth + count)?;
        }
    }

    fn check_count(&self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            Err(format!("an expression is nested more than {MAX_DEPTH} deep"))
        } else {
            Ok(())
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Expression, String> {
        self.check_count(depth)?;
        match self.next() {
            Some('-') => {
                self.left = &self.left[1..];
                let zero = Box::new(Expression::Constant(Value::Number(0)));
                Ok(Expression::Operation('-', zero, Box::new(self.factor(depth + 1)?)))
            }
            Some('(') => {
                self.left = &self.left[1..];
                let inner = self.sum(depth + 1)?;
                if self.take(")") { Ok(inner) } else { Err(self.unexpected()) }
            }
            Some(quote @ ('\'' | '"')) => {
                self.left = &self.left[1..];
                let text = self.take_while(|c| c != quote && c != '\\').to_owned();
                if !self.left.starts_with(quote) {
                    return Err(self.unexpected());
                }
                self.left = &self.left[1..];
                Ok(Expression::Constant(Value::Text(text)))
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.take_while(|c| c.is_ascii_digit());
                let number = digits.parse().map_err(|_| format!("{digits} is not a number of 64 bits"))?;
                Ok(Expression::Constant(Value::Number(number)))
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let name = self.take_while(|c| c.is_alphanumeric() || c == '_').to_owned();
                if self.take("(") { self.arguments(name, depth) } else { Ok(Expression::Name(name)) }
            }
            _ => Err(self.unexpected()),
        }
    }

    fn arguments(&mut self, function: String, depth: usize) -> Result<Expression, String> {
        let mut arguments = Vec::new();
        while !self.take(")") {
            self.next();
            let name = self.take_while(|c| c.is_alphanumeric() || c == '_').to_owned();
            if name.is_empty() || !self.take("=") || arguments.len() >= MAX_PARTS {
                return Err(self.unexpected());
            }
            arguments.push((name, self.sum(depth + 1)?));
            if !self.take(",") && self.next() != Some(')') {
                return Err(self.unexpected());
            }
        }
        Ok(Expression::Call(function, arguments))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn results_equal_those_of_jinja() {
        let templates = serde_json::json!({"u": "server.domain/path", "f": "<{{c}}>", "two": "{{c}}{{c}}"});
        let templates = Templates::parse(&templates).unwrap();
        let variables = [("i", Value::Number(3)), ("name", Value::Text("x".to_owned()))];
        let render = |text: &str| Template::parse(text)?.render(&templates, &variables);
        for (text, made) in [
            ("plain", "plain"),
            ("http://{{u}}/{{ i }}", "http://server.domain/path/3"),
            ("{{f(c='text')}}|{{ f(c = i + 1) }}|{{f(c=f(c=\"a\"))}}", "<text>|<4>|<<a>>"),
            ("{{(i + 1) * 1000}} {{-i}} {{7 // 2 % 2}} {{ i ~ name }}", "4000 -3 1 3x"),
            ("t_{{'%03d' % i}}.nc", "t_003.nc"),
        ] {
            assert_eq!(render(text).unwrap(), made, "{text}");
        }
        for text in [
            "{{",
            "{{}}",
            "{{missing}}",
            "{{u.upper()}}",
            "{{f}}",
            "{{i / 2}}",
            "{{i // 0}}",
            "{{ 'a",
            "{{f(1)}}",
            "{% for i in x %}",
            "{{9223372036854775807 + 1}}",
            "{{99999999999999999999}}",
            "{{'%999999d' % i}}",
            "{{'a' * 3}}",
        ] {
            assert!(render(text).is_err(), "{text}");
        }
        let deep = format!("{{{{{}1{}}}}}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(render(&deep).unwrap_err().contains("deep"));
        let doubled = (0..20).fold("'0123456789'".to_owned(), |inner, _| format!("two(c={inner})"));
        assert!(render(&format!("{{{{{doubled}}}}}")).unwrap_err().contains("more than 65536"));
    }
}
