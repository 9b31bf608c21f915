//! What an ingest answered, as lines of text. Keys and reasons come from elsewhere: control characters are taken out.

use serde_json::Value;

use crate::show::plain;

/// One operation.
pub fn item(item: &Value) -> String {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let (status, key, offset) = (text("status"), text("key"), text("offset"));
    let field = if text("field").is_empty() { String::new() } else { format!("{}: ", text("field")) };
    let reason =
        if text("reason").is_empty() { String::new() } else { format!(": {field}{}", text("reason")) };
    let at = if offset.is_empty() { String::new() } else { format!(" at {offset}") };
    plain(&format!("{status:10} {key}{at}{reason}"))
}

/// Operations that were refused, oldest first.
pub fn dead_letters(answer: &Value) -> Vec<String> {
    let letters = answer["letters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = letters
        .iter()
        .map(|letter| {
            let text = |name: &str| letter[name].as_str().unwrap_or("?");
            let at = letter["at_us"].as_i64().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
            let at = at.map_or_else(|| "?".to_owned(), |at| format!("{at:.0}"));
            plain(&format!("{at} {} {} (by {}): {}", text("op"), text("key"), text("by"), text("reason")))
        })
        .collect();
    if lines.is_empty() {
        lines.push("no dead letter".to_owned());
    }
    if let Some(dropped @ 1..) = answer["dropped"].as_u64() {
        lines.push(format!("{dropped} older ones are not kept any more"));
    }
    lines
}

/// What was erased, and what is left to do.
pub fn erased(answer: &Value) -> Vec<String> {
    let mut lines = vec![format!("token {}", plain(answer["token"].as_str().unwrap_or_default()))];
    lines.extend(answer["steps"].as_array().into_iter().flatten().map(|step| {
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let done = if step["done"] == true { "done" } else { "to do" };
        plain(format!("{done:6} {:14} {}", text("what"), text("detail")).trim_end())
    }));
    lines
}
