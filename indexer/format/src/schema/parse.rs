//! Schema files, read key by key. A derived reader stops at the first wrong key; whoever writes a schema wants all of
//! them at once. What is missing or wrong is noted and replaced by a default, so that the rest can still be checked.

use toml::{Table, Value};

use super::{Field, Kind, Schema, short};

const KINDS: &str = "text, keyword, i64, u64, f64, bool, date or map";

/// The schema as far as it could be read, and every problem found.
pub(super) fn read(text: &str) -> (Schema, Vec<String>) {
    let mut problems = Vec::new();
    let mut table = text.parse::<Table>().unwrap_or_else(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        problems.push(format!("line {line}: {}", error.message()));
        Table::new()
    });
    if !problems.is_empty() {
        return (Schema::web(), problems);
    }
    let mut top = Keys { table: &mut table, place: String::new(), problems: &mut problems };
    let mut schema = Schema {
        name: top.string("name").unwrap_or_else(|| "unnamed".into()),
        key: top.string("key").unwrap_or_default(),
        default_language: top.string("default_language").unwrap_or_else(|| "en".into()),
        fields: Vec::new(),
    };
    let fields = top.take("fields");
    top.finish();
    match fields {
        Some(Value::Array(fields)) => {
            for (i, value) in fields.into_iter().enumerate() {
                match value {
                    Value::Table(table) => schema.fields.push(field(table, i, &mut problems)),
                    other => {
                        problems.push(format!("fields[{i}]: a table is needed, not {}", other.type_str()));
                    }
                }
            }
        }
        Some(other) => {
            problems.push(format!("fields: [[fields]] tables are needed, not {}", other.type_str()));
        }
        None => problems.push("fields: missing; add [[fields]] tables".into()),
    }
    (schema, problems)
}

fn field(mut table: Table, number: usize, problems: &mut Vec<String>) -> Field {
    let place = match table.get("name") {
        Some(Value::String(name)) => format!("field {:?}: ", short(name)),
        _ => format!("fields[{number}]: "),
    };
    let mut keys = Keys { table: &mut table, place, problems };
    let name = keys.string("name").unwrap_or_else(|| format!("unnamed_{number}"));
    let kind = keys.kind();
    let weight = keys.weight();
    let field = Field {
        name,
        kind,
        weight,
        query: keys.flag("query", false),
        show: keys.flag("show", true),
        multi: keys.flag("multi", false),
    };
    keys.finish();
    field
}

/// Takes known keys out of a table; what is left at the end is unknown.
struct Keys<'a> {
    table: &'a mut Table,
    place: String,
    problems: &'a mut Vec<String>,
}

impl Keys<'_> {
    fn take(&mut self, key: &str) -> Option<Value> {
        self.table.remove(key)
    }

    fn wrong(&mut self, problem: String) {
        self.problems.push(format!("{}{problem}", self.place));
    }

    fn string(&mut self, key: &str) -> Option<String> {
        match self.take(key) {
            Some(Value::String(text)) => return Some(text),
            Some(other) => self.wrong(format!("{key}: a string is needed, not {}", other.type_str())),
            None => self.wrong(format!("{key}: missing")),
        }
        None
    }

    fn kind(&mut self) -> Kind {
        let Some(text) = self.string("kind") else { return Kind::Text };
        let all =
            [Kind::Text, Kind::Keyword, Kind::I64, Kind::U64, Kind::F64, Kind::Bool, Kind::Date, Kind::Map];
        all.into_iter().find(|kind| kind.name() == text).unwrap_or_else(|| {
            self.wrong(format!("kind: {:?} is unknown; it is one of {KINDS}", short(&text)));
            Kind::Text
        })
    }

    fn weight(&mut self) -> u32 {
        match self.take("weight") {
            None => 0,
            Some(Value::Integer(weight)) => u32::try_from(weight).unwrap_or(u32::MAX),
            Some(other) => {
                self.wrong(format!("weight: a whole number is needed, not {}", other.type_str()));
                0
            }
        }
    }

    fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.take(key) {
            None => default,
            Some(Value::Boolean(flag)) => flag,
            Some(other) => {
                self.wrong(format!("{key}: true or false is needed, not {}", other.type_str()));
                default
            }
        }
    }

    fn finish(self) {
        for key in self.table.keys() {
            self.problems.push(format!("{}{}: unknown key", self.place, short(key)));
        }
    }
}
