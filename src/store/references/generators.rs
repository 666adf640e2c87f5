//! Generators: the member `gen` of references of version 1, which makes many keys from a short description.
//!
//! Uses `templates` and `table`. Invariant: the number of keys is known and limited before the first one is made.

use serde_json::Value as Json;

use super::table::{TableBuilder, checked_range};
use super::templates::{Template, Templates, Value};

/// The most keys that all generators together may make.
const MAX_KEYS: u64 = 10_000_000;

/// The values of one dimension.
enum Values {
    Range { start: i64, step: i64, count: u64 },
    List(Vec<Value>),
}

impl Values {
    fn parse(document: &Json) -> Option<Self> {
        if let Some(list) = document.as_array() {
            let value = |value: &Json| match value {
                Json::String(text) => Some(Value::Text(text.clone())),
                Json::Number(number) => {
                    Some(number.as_i64().map_or_else(|| Value::Text(number.to_string()), Value::Number))
                }
                _ => None,
            };
            return list.iter().map(value).collect::<Option<_>>().map(Values::List);
        }
        let number = |name: &str, default: Option<i64>| match document.get(name) {
            None => default,
            Some(value) => value.as_i64(),
        };
        let (start, stop, step) =
            (number("start", Some(0))?, number("stop", None)?, number("step", Some(1))?);
        if step == 0 {
            return None;
        }
        let distance = i128::from(stop) - i128::from(start);
        let step_wide = i128::from(step);
        let count = if (distance > 0) == (step > 0) {
            (distance.abs() + step_wide.abs() - 1) / step_wide.abs()
        } else {
            0
        };
        Some(Values::Range { start, step, count: u64::try_from(count).unwrap_or(u64::MAX) })
    }

    fn count(&self) -> u64 {
        match self {
            Values::Range { count, .. } => *count,
            Values::List(list) => list.len() as u64,
        }
    }

    /// Returns a value by its number, which is below the count.
    fn value(&self, number: u64) -> Value {
        match self {
            Values::Range { start, step, .. } => {
                Value::Number(start.saturating_add(step.saturating_mul(number as i64)))
            }
            Values::List(list) => list.get(number as usize).cloned().unwrap_or(Value::Number(0)),
        }
    }
}

/// Adds the references of all generators.
pub(super) fn run(document: &Json, templates: &Templates, table: &mut TableBuilder) -> Result<(), String> {
    let Some(generators) = document.as_array() else { return Err("'gen' is not a list".to_owned()) };
    let mut keys_left = MAX_KEYS;
    for (number, generator) in generators.iter().enumerate() {
        one(generator, templates, table, &mut keys_left)
            .map_err(|reason| format!("the generator gen[{number}]: {reason}"))?;
    }
    Ok(())
}

fn one(
    generator: &Json,
    templates: &Templates,
    table: &mut TableBuilder,
    keys_left: &mut u64,
) -> Result<(), String> {
    let template = |name: &str| match generator.get(name) {
        None => Ok(None),
        Some(Json::String(text)) => Template::parse(text).map(Some),
        Some(Json::Number(number)) => Template::parse(&number.to_string()).map(Some),
        Some(_) => Err(format!("'{name}' is not a text")),
    };
    let key = template("key")?.ok_or("has no 'key'")?;
    let url = template("url")?.ok_or("has no 'url'")?;
    let range = match (template("offset")?, template("length")?) {
        (None, None) => None,
        (Some(offset), Some(length)) => Some((offset, length)),
        _ => return Err("has one of 'offset' and 'length' only".to_owned()),
    };
    let dimensions = generator.get("dimensions").and_then(Json::as_object).ok_or("has no 'dimensions'")?;
    let mut names = Vec::new();
    let mut count = 1u64;
    for (name, values) in dimensions {
        let values = Values::parse(values)
            .ok_or_else(|| format!("the dimension '{name}' is neither a list nor {{start, stop, step}}"))?;
        count = count.saturating_mul(values.count());
        names.push((name.as_str(), values));
    }
    if count > *keys_left {
        return Err(format!("makes {count} keys, and all of them together may make {MAX_KEYS}"));
    }
    *keys_left -= count;
    for number in 0..count {
        let mut rest = number;
        let mut variables: Vec<(&str, Value)> = Vec::with_capacity(names.len());
        for (name, values) in names.iter().rev() {
            variables.push((*name, values.value(rest % values.count())));
            rest /= values.count();
        }
        let render = |template: &Template| template.render(templates, &variables);
        let range = match &range {
            None => None,
            Some((offset, length)) => {
                let number = |template: &Template| {
                    let text = render(template)?;
                    let number = text.trim().parse::<u64>();
                    number.map_err(|_| format!("'{text}' is not an offset or length"))
                };
                Some(checked_range(number(offset)?, number(length)?)?)
            }
        };
        table.add_target(&render(&key)?, &render(&url)?, range)?;
    }
    Ok(())
}
