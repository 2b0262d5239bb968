//! JSON as readers take it that do not let a key stand twice in an object.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a text, or names the key that stands twice in an object of it.
pub(crate) fn read(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).map(|Strict(value)| value)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Anything).map(Self)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((key, Strict(value))) = fields.next_entry::<String, _>()? {
            if all.insert(key.clone(), value).is_some() {
                return Err(A::Error::custom(format!("`{key}` is there twice")));
            }
        }
        Ok(all.into())
    }
}

#[test]
fn a_key_that_stands_twice_is_found_and_the_rest_is_read_as_it_is() {
    let good = r#"{"a": [1, -2, 0.5, true, null, "x"], "b": {"a": {}}}"#;
    assert_eq!(
        read(good).unwrap(),
        serde_json::from_str::<Value>(good).unwrap()
    );

    let error = read(r#"{"b": [{"a": 1, "a": 2}]}"#).unwrap_err();
    assert!(error.to_string().starts_with("`a` is there twice"));
}
