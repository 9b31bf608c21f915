//! A map field: attributes by name, each one scalar. Names are bounded and without dots, because `attributes.color` is
//! how a query says them; a map inside a map has no such name and is refused.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{MAX_ATTRIBUTES, Reject, Value, typed};

/// Longest attribute name, bytes.
const MAX_NAME: usize = 128;

/// Adds the attributes of a map field as `field.attribute`.
pub(super) fn read(field: &str, json: Json, values: &mut BTreeMap<String, Vec<Value>>) -> Result<(), Reject> {
    let entries = match json {
        Json::Null => return Ok(()),
        Json::Object(entries) => entries,
        found => {
            let reason = format!("expected an object of attributes, found {}", typed::shown(&found));
            return Err(Reject::new(field, reason));
        }
    };
    if entries.len() > MAX_ATTRIBUTES {
        let reason = format!("{} attributes given, at most {MAX_ATTRIBUTES} allowed", entries.len());
        return Err(Reject::new(field, reason));
    }
    for (name, json) in entries {
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(|c| c == '.' || c.is_control()) {
            let reason = format!(
                "an attribute's name has 1 to {MAX_NAME} bytes and neither dots nor control characters"
            );
            return Err(Reject::new(&format!("{field}.{name}"), reason));
        }
        let full = format!("{field}.{name}");
        if let Some(value) = scalar(&full, json)? {
            values.insert(full, vec![value]);
        }
    }
    Ok(())
}

fn scalar(full: &str, json: Json) -> Result<Option<Value>, Reject> {
    Ok(Some(match json {
        Json::Null => return Ok(None),
        Json::Bool(flag) => Value::Bool(flag),
        Json::String(text) => Value::Text(typed::keyword(full, text)?),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), _, _) => Value::I64(whole),
            (_, Some(whole), _) => Value::U64(whole),
            (_, _, Some(float)) if float.is_finite() => Value::F64(float),
            _ => return Err(Reject::new(full, format!("expected a finite number, found {number}"))),
        },
        found @ (Json::Array(_) | Json::Object(_)) => {
            let reason = format!(
                "expected a string, number or boolean, found {}; maps are flat",
                typed::shown(&found)
            );
            return Err(Reject::new(full, reason));
        }
    }))
}

/// The object of a map field's attributes.
pub(super) fn source(field: &str, values: &BTreeMap<String, Vec<Value>>) -> Option<Json> {
    let prefix = format!("{field}.");
    let entries: serde_json::Map<String, Json> = values
        .range(prefix.clone()..)
        .take_while(|(name, _)| name.starts_with(&prefix))
        .filter_map(|(name, values)| Some((name[prefix.len()..].to_owned(), typed::json(values.first()?))))
        .collect();
    (!entries.is_empty()).then_some(Json::Object(entries))
}
