//! One JSON value as a value of its field's type, and back. Types are never guessed: `"3"` is no number, but for the
//! 64-bit whole numbers, which travel as strings where a reader has only floats; `1` is no text and no boolean.

use serde_json::{Number, Value as Json};

use super::{
    MAX_KEYWORD_BYTES, Reject, Value,
    date::{self, Wrong},
};
use crate::schema::{Field, Kind};

/// Types a value. The inner error drops the field, the outer one the record.
pub(super) fn value(field: &Field, json: Json) -> Result<Result<Value, String>, Reject> {
    let wrong = |found: &Json| {
        let expected = expected(field.kind);
        Err(Reject::new(&field.name, format!("expected {expected}, found {}", shown(found))))
    };
    Ok(Ok(match (field.kind, json) {
        (Kind::Text, Json::String(text)) => Value::Text(without_nul(text)),
        (Kind::Keyword, Json::String(text)) => Value::Text(keyword(&field.name, text)?),
        (Kind::I64, Json::Number(number)) if number.is_i64() => {
            Value::I64(number.as_i64().unwrap_or_default())
        }
        (Kind::U64, Json::Number(number)) if number.is_u64() => {
            Value::U64(number.as_u64().unwrap_or_default())
        }
        (Kind::I64, Json::String(text)) => match text.parse() {
            Ok(number) => Value::I64(number),
            Err(_) => return wrong(&Json::String(text)),
        },
        (Kind::U64, Json::String(text)) => match text.parse() {
            Ok(number) => Value::U64(number),
            Err(_) => return wrong(&Json::String(text)),
        },
        (Kind::F64, Json::Number(number)) => match number.as_f64().filter(|float| float.is_finite()) {
            Some(float) => Value::F64(float),
            None => return wrong(&Json::Number(number)),
        },
        (Kind::Bool, Json::Bool(flag)) => Value::Bool(flag),
        (Kind::Date, json @ (Json::String(_) | Json::Number(_))) => return date(field, &json),
        (_, found) => return wrong(&found),
    }))
}

fn date(field: &Field, json: &Json) -> Result<Result<Value, String>, Reject> {
    let parsed = match json {
        Json::String(text) => date::parse(text),
        // Above i64 the number is a whole one, beyond all years; a float is not whole.
        Json::Number(number) => match number.as_i64() {
            Some(seconds) => date::from_seconds(seconds),
            None if number.is_u64() => Err(Wrong::OutOfRange),
            None => Err(Wrong::NotADate),
        },
        _ => Err(Wrong::NotADate),
    };
    match parsed {
        Ok(micros) => Ok(Ok(Value::Date(micros))),
        Err(Wrong::OutOfRange) if json.is_number() => Ok(Err(format!(
            "{json} seconds since 1970 are not within the years 0001 to 9999; were they milliseconds?"
        ))),
        Err(Wrong::OutOfRange) => Ok(Err(format!("{} is not within the years 0001 to 9999", shown(json)))),
        Err(Wrong::NotADate) => {
            Err(Reject::new(&field.name, format!("expected {}, found {}", expected(Kind::Date), shown(json))))
        }
    }
}

/// A keyword without NUL and within its bound.
pub(super) fn keyword(field: &str, text: String) -> Result<String, Reject> {
    let text = without_nul(text);
    if text.len() > MAX_KEYWORD_BYTES {
        let reason = format!("{} bytes given, a keyword has at most {MAX_KEYWORD_BYTES}", text.len());
        return Err(Reject::new(field, reason));
    }
    Ok(text)
}

fn without_nul(mut text: String) -> String {
    if text.contains('\0') {
        text.retain(|c| c != '\0');
    }
    text
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Text | Kind::Keyword => "a string",
        Kind::I64 => "a whole number of 64 bits",
        Kind::U64 => "a whole number of 64 bits, not negative",
        Kind::F64 => "a finite number",
        Kind::Bool => "true or false",
        Kind::Date => "a date such as 2024-02-29 or 2024-02-29T12:30:00Z, or whole seconds since 1970",
        Kind::Map => "an object of attributes",
    }
}

/// A value for a message: its type, and scalars themselves, cut.
pub(super) fn shown(json: &Json) -> String {
    match json {
        Json::Null => "null".into(),
        Json::Bool(flag) => flag.to_string(),
        Json::Number(number) => format!("the number {number}"),
        Json::String(text) => format!("the string {:?}", text.chars().take(40).collect::<String>()),
        Json::Array(values) => format!("a list of {}", values.len()),
        Json::Object(entries) => format!("an object of {}", entries.len()),
    }
}

/// Bytes of a value, about as its JSON has.
pub(super) fn size(json: &Json) -> usize {
    match json {
        Json::Null | Json::Bool(_) => 5,
        Json::Number(_) => 8,
        Json::String(text) => text.len() + 3,
        Json::Array(values) => 2 + values.iter().map(|value| 1 + size(value)).sum::<usize>(),
        Json::Object(entries) => {
            2 + entries.iter().map(|(name, value)| name.len() + 4 + size(value)).sum::<usize>()
        }
    }
}

/// The JSON of a value.
pub(super) fn json(value: &Value) -> Json {
    match value {
        Value::Text(text) => Json::String(text.clone()),
        Value::I64(number) => Json::from(*number),
        Value::U64(number) => Json::from(*number),
        Value::F64(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Date(micros) => Json::String(date::format(*micros)),
    }
}
