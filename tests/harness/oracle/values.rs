//! Values of a document by field: equality, ranges, order and display, by what the values mean.

use std::{cmp::Ordering, collections::BTreeMap};

use canopy_proto::v1::{self, value::Kind};
use serde_json::Value;

use crate::corpus::Page;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// Keyword.
    Text(String),
    /// Whole number, or a date's microseconds.
    Whole(i128),
    /// Float.
    Float(f64),
    /// Boolean.
    Bool(bool),
}

impl Stored {
    fn json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Bool(yes) => Some(Self::Bool(*yes)),
            Value::Number(number) => Some(match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Self::Whole(whole.into()),
                (_, Some(whole)) => Self::Whole(whole.into()),
                _ => Self::Float(number.as_f64()?),
            }),
            _ => None,
        }
    }

    /// As a facet shows it.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(whole) => whole.to_string(),
            Self::Float(float) => float.to_string(),
            Self::Bool(yes) => yes.to_string(),
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Self::Whole(whole) => Some(*whole as f64),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }

    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(b)),
            _ => self.float()?.partial_cmp(&other.float()?),
        }
    }

    fn wire(value: Option<&v1::Value>) -> Self {
        match value.and_then(|value| value.kind.as_ref()).expect("a value") {
            Kind::Text(text) => Self::Text(text.clone()),
            Kind::I64(whole) | Kind::DateUs(whole) => Self::Whole((*whole).into()),
            Kind::U64(whole) => Self::Whole((*whole).into()),
            Kind::F64(float) => Self::Float(*float),
            Kind::Bool(yes) => Self::Bool(*yes),
        }
    }
}

/// All values of a document.
pub struct Values {
    fields: BTreeMap<String, Vec<Stored>>,
    static_rank: f64,
}

impl Values {
    /// Of a page.
    pub fn of(page: &Page) -> Self {
        let mut fields: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
        let mut put = |name: &str, value: Stored| fields.entry(name.to_owned()).or_default().push(value);
        put("url", Stored::Text(page.key.clone()));
        put("lang", Stored::Text(page.language.clone()));
        page.host.iter().for_each(|host| put("host", Stored::Text(host.clone())));
        page.topics.iter().for_each(|topic| put("topic", Stored::Text(topic.clone())));
        if let Some(us) = page.published {
            put("published", Stored::Whole(us.into()));
        }
        let static_rank = page.static_rank.unwrap_or(0.0);
        put("static_rank", Stored::Float(static_rank));
        for (name, value) in &page.attributes {
            if let Some(value) = Stored::json(value) {
                put(&format!("attributes.{name}"), value);
            }
        }
        Self { fields, static_rank }
    }

    /// Static rank.
    pub fn static_rank(&self) -> f64 {
        self.static_rank
    }

    /// Values of a field.
    pub fn get(&self, field: &str) -> &[Stored] {
        self.fields.get(field).map_or(&[], Vec::as_slice)
    }

    /// First keyword of a field.
    pub fn first_text(&self, field: &str) -> Option<&str> {
        match self.get(field).first()? {
            Stored::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether some value of the field equals some wanted one. An attribute has a type per document, so text equals a
    /// number or boolean that is written alike.
    pub fn equal_any(&self, field: &str, wanted: &[v1::Value]) -> bool {
        let mixed = field.starts_with("attributes.");
        wanted.iter().map(|value| Stored::wire(Some(value))).any(|wanted| {
            self.get(field).iter().any(|value| {
                let reads_alike = || match &wanted {
                    Stored::Text(text) if mixed => reads_as(text, value),
                    _ => false,
                };
                value.compare(&wanted) == Some(Ordering::Equal) || reads_alike()
            })
        })
    }

    /// Whether some value is in the range.
    pub fn within(&self, range: &v1::RangeQuery) -> bool {
        let holds = |value: &Stored, bound: Option<&v1::Bound>, outside: Ordering| {
            let Some(bound) = bound else { return true };
            match value.compare(&Stored::wire(bound.value.as_ref())) {
                None => false,
                Some(Ordering::Equal) => bound.inclusive,
                Some(order) => order != outside,
            }
        };
        self.get(&range.field).iter().any(|value| {
            holds(value, range.lower.as_ref(), Ordering::Less)
                && holds(value, range.upper.as_ref(), Ordering::Greater)
        })
    }

    /// The value that a sort looks at: the one that comes first.
    pub fn sorted_by(&self, field: &str, descending: bool) -> Option<Stored> {
        let mixed = field.starts_with("attributes.");
        let values = self.get(field).iter().map(|value| match value {
            Stored::Whole(whole) if mixed => Stored::Float(*whole as f64),
            other => other.clone(),
        });
        values.min_by(|a, b| directed(Some(a), Some(b), descending))
    }
}

fn reads_as(text: &str, value: &Stored) -> bool {
    match value {
        Stored::Bool(yes) => text == yes.to_string(),
        Stored::Whole(_) | Stored::Float(_) => {
            text.parse::<f64>().ok().zip(value.float()).is_some_and(|(a, b)| a == b)
        }
        Stored::Text(_) => false,
    }
}

fn kind(value: &Stored) -> u8 {
    match value {
        Stored::Bool(_) => 0,
        Stored::Whole(_) | Stored::Float(_) => 1,
        Stored::Text(_) => 2,
    }
}

/// Order of two places: missing ones are last in both directions, kinds are kept apart.
pub fn directed(a: Option<&Stored>, b: Option<&Stored>, descending: bool) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => {
            let order = a.compare(b).unwrap_or_else(|| kind(a).cmp(&kind(b)));
            if descending { order.reverse() } else { order }
        }
    }
}
