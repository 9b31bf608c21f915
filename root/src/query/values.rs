//! Typed values of fields: a word of the query becomes the value that the index holds, or a reason why it can't be one.
//! The reason names the type and what would be right; the caller knows whether it is a warning or an error.

use canopy_format::schema::Kind;
use canopy_proto::v1::{Value, value::Kind as Typed};

use super::target::{Target, short};

/// A value for the wire.
pub fn value(kind: Typed) -> Value {
    Value { kind: Some(kind) }
}

/// Reads one value of a keyword, number or boolean field. Dates are intervals: [`super::dates`].
pub fn typed(target: &Target, text: &str) -> Result<Value, String> {
    let bad = |what: &str| format!("{} needs {what}, not {:?}", short(&target.name), short(text));
    let kind = match target.kind {
        Kind::Keyword | Kind::Text | Kind::Map => Typed::Text(keyword(target, text)),
        Kind::I64 => Typed::I64(text.parse().map_err(|_| bad("a whole number of 64 bits"))?),
        Kind::U64 => Typed::U64(text.parse().map_err(|_| bad("a whole number, 0 or more, of 64 bits"))?),
        Kind::F64 => Typed::F64(number(text).ok_or_else(|| bad("a number"))?),
        Kind::Bool => Typed::Bool(boolean(text).ok_or_else(|| bad("true or false"))?),
        Kind::Date => return Err(bad("a date")),
    };
    Ok(value(kind))
}

/// All values that an exact word may be: for `site:` a host with and without `www.`, else one. The value of a map
/// attribute stays text, since its type is the document's; a leaf compares text that reads as a number with both.
pub fn exact(target: &Target, text: &str) -> Result<Vec<Value>, String> {
    if target.site {
        let host = host(text).ok_or_else(|| format!("site needs a host name, not {:?}", short(text)))?;
        let with = format!("www.{host}");
        return Ok(vec![value(Typed::Text(host)), value(Typed::Text(with))]);
    }
    Ok(vec![typed(target, text)?])
}

/// A finite number.
pub fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

fn keyword(target: &Target, text: &str) -> String {
    if target.is_language() { language(text).unwrap_or_else(|| text.to_owned()) } else { text.to_owned() }
}

/// One end of a range. Numbers of any type bound a number field: what lies outside its type just bounds nothing.
pub fn bound(target: &Target, text: &str) -> Result<Value, String> {
    match target.kind {
        Kind::I64 | Kind::U64 => {
            let whole = text.parse().map(Typed::I64).or_else(|_| text.parse().map(Typed::U64)).ok();
            let kind = whole.or_else(|| number(text).map(Typed::F64));
            kind.map(value)
                .ok_or_else(|| format!("{} needs a number, not {:?}", short(&target.name), short(text)))
        }
        _ => typed(target, text),
    }
}

/// The code of a language tag as documents have it: `en` of `en-GB`. `None` when it is no tag.
pub fn language(tag: &str) -> Option<String> {
    canopy_format::analysis::language_code(tag)
}

/// The host of whatever was pasted behind `site:`: a host, an address, a whole URL; without `www.`.
fn host(text: &str) -> Option<String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let rest = rest.split(['/', '?', '#']).next().unwrap_or("");
    let rest = rest.rsplit('@').next().unwrap_or("");
    let port = rest.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let rest = port.map_or(rest, |(host, _)| host);
    let rest = rest.trim_start_matches("*.").trim_matches('.').to_lowercase();
    let host = rest.strip_prefix("www.").unwrap_or(&rest);
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::target::resolve;
    use canopy_format::schema::Schema;

    fn target(kind: Kind) -> Target {
        Target { name: "price".into(), kind, searchable: false, site: false }
    }

    #[test]
    fn values_have_the_type_of_their_field_or_say_what_it_is() {
        assert_eq!(typed(&target(Kind::I64), "-5"), Ok(value(Typed::I64(-5))));
        assert_eq!(typed(&target(Kind::U64), "18446744073709551615"), Ok(value(Typed::U64(u64::MAX))));
        assert_eq!(typed(&target(Kind::F64), "1.5e3"), Ok(value(Typed::F64(1500.0))));
        assert_eq!(typed(&target(Kind::Bool), "True"), Ok(value(Typed::Bool(true))));
        let table = [
            (Kind::I64, "1.5"),
            (Kind::I64, "9223372036854775808"),
            (Kind::U64, "-1"),
            (Kind::F64, "NaN"),
            (Kind::F64, "inf"),
            (Kind::F64, "1e999"),
            (Kind::Bool, "yes"),
            (Kind::I64, ""),
        ];
        for (kind, text) in table {
            let reason = typed(&target(kind), text).expect_err(text);
            assert!(reason.starts_with("price needs "), "{reason}");
        }
    }

    #[test]
    fn bounds_of_a_number_field_may_be_any_number() {
        assert_eq!(bound(&target(Kind::I64), "2.5"), Ok(value(Typed::F64(2.5))));
        assert_eq!(bound(&target(Kind::U64), "-3"), Ok(value(Typed::I64(-3))));
        assert_eq!(bound(&target(Kind::U64), "18446744073709551615"), Ok(value(Typed::U64(u64::MAX))));
        assert_eq!(bound(&target(Kind::F64), "1e3"), Ok(value(Typed::F64(1000.0))));
        for text in ["x", "", "NaN", "1e999"] {
            assert!(bound(&target(Kind::I64), text).is_err(), "{text}");
        }
    }

    #[test]
    fn site_takes_a_host_from_whatever_was_pasted() {
        let schema = Schema::web();
        let site = resolve(&schema, "site").unwrap();
        let table = [
            "example.org",
            "www.example.org",
            "EXAMPLE.org.",
            "*.example.org",
            "https://user@www.example.org:8443/a?b#c",
        ];
        let expected = ["example.org", "www.example.org"].map(|host| value(Typed::Text(host.into())));
        for text in table {
            assert_eq!(exact(&site, text).unwrap(), expected, "{text}");
        }
        for text in ["", "://", "/path", ":80", "."] {
            assert!(exact(&site, text).is_err(), "{text}");
        }
    }

    #[test]
    fn language_tags_are_cut_to_their_code() {
        for tag in ["de", "DE", "de-AT", "de_CH.UTF-8", " de ", "deu", "German"] {
            assert_eq!(language(tag).as_deref(), Some("de"), "{tag}");
        }
        for tag in ["", "d", "klingon", "d1", "-de", "ａｂ"] {
            assert_eq!(language(tag), None, "{tag}");
        }
    }
}
