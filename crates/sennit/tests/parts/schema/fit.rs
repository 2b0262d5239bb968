//! Whether a document fits a schema, as far as our schemas go; what the schema does not name is a
//! complaint, so that no field is forgotten there.

use serde_json::{Map, Value};

/// Everything that does not fit, each with its place.
pub(crate) fn complaints(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, document, "", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|it| root.pointer(it));
        let target = target.unwrap_or_else(|| panic!("no {reference}"));
        return check(root, target, value, place, found);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema.get(choice).and_then(Value::as_array) {
            let fits = |schema: &&Value| {
                let mut inner = Vec::new();
                check(root, schema, value, place, &mut inner);
                inner.is_empty()
            };
            if !choices.iter().any(|choice| fits(&choice)) {
                found.push(format!("{place}: {value} is none of the choices"));
            }
        }
    }
    let words = schema.get("enum").and_then(Value::as_array);
    let not_a_word = words.is_some_and(|words| !words.contains(value));
    if not_a_word || schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{place}: {value} is no word of the schema"));
    }
    if let Some(kinds) = schema.get("type")
        && !is_a(kinds, value)
    {
        found.push(format!("{place}: {value} is not {kinds}"));
    }
    match value {
        Value::Object(fields) if schema.get("properties").is_some() => {
            check_fields(root, schema, fields, place, found);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Some(schema) = schema.get("items") {
                    check(root, schema, item, &format!("{place}/{index}"), found);
                }
            }
        }
        _ => {}
    }
}

fn check_fields(
    root: &Value,
    schema: &Value,
    fields: &Map<String, Value>,
    place: &str,
    found: &mut Vec<String>,
) {
    let known = &schema["properties"];
    for (name, value) in fields {
        let place = format!("{place}/{name}");
        match known.get(name) {
            Some(schema) => check(root, schema, value, &place, found),
            None => found.push(format!("{place} is not in the schema")),
        }
    }
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(format!("{place}/{name} is missing"));
        }
    }
}

fn is_a(kinds: &Value, value: &Value) -> bool {
    let one = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    };
    kinds
        .as_array()
        .map_or_else(|| one(kinds), |kinds| kinds.iter().any(one))
}
