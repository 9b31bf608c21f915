//! A plain model of the rules, over JSON: what the documents are after operations in the order of the log. And the
//! operations, drawn at random.

use super::*;

/// Random numbers of a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn words(&mut self, most: u64) -> String {
        const WORDS: [&str; 16] = [
            "replication",
            "replicated",
            "replicating",
            "index",
            "indexes",
            "indexing",
            "vacuum",
            "Vacuums",
            "slots",
            "the",
            "memory",
            "memories",
            "C++",
            "naïve",
            "データベース",
            "running",
        ];
        let mut words = vec![];
        for _ in 0..self.below(most) {
            match self.below(6) {
                0 => words.push(format!("rare{}ing", self.below(40))),
                _ => words.push(WORDS[self.below(16) as usize].to_owned()),
            }
        }
        words.join(" ")
    }

    fn fields(&mut self) -> Map<String, Json> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Json| fields.insert(name.to_owned(), value);
        set("title", json!(self.words(5)));
        if self.below(4) > 0 {
            set("body", json!(self.words(40)));
        }
        if self.below(3) == 0 {
            set("anchors", json!([self.words(3), self.words(4)]));
        }
        if self.below(3) == 0 {
            set("static_rank", json!(self.below(100) as f64 / 100.0));
        }
        if self.below(3) == 0 {
            set("published", json!(format!("20{:02}-05-01", 10 + self.below(15))));
        }
        if self.below(3) == 0 {
            set("attributes", json!({ "color": self.words(3), "size": self.below(9) }));
        }
        set("lang", json!(["en", "de", "ja"][self.below(3) as usize]));
        fields
    }
}

/// A key: its newest put or delete, its fields with the orders of later patches.
#[derive(Default)]
struct Key {
    order: u64,
    fields: Option<Map<String, Json>>,
    patched: BTreeMap<String, u64>,
}

pub(super) struct Model {
    pub(super) ordering: Ordering,
    keys: BTreeMap<String, Key>,
    /// Orders are drawn around it: none is drawn twice.
    next: u64,
}

impl Model {
    pub(super) fn new(ordering: Ordering) -> Self {
        Self { ordering, keys: BTreeMap::new(), next: 1 }
    }

    fn key(dice: &mut Dice) -> String {
        format!("https://example.org/{}", dice.below(60))
    }

    /// A document of the source.
    pub(super) fn put_before(&mut self, dice: &mut Dice) {
        let (key, fields) = (Self::key(dice), dice.fields());
        let order = self.order(dice);
        self.put(&key, order, fields);
    }

    /// A number that grows, or often is an older one where producers decide.
    fn order(&mut self, dice: &mut Dice) -> u64 {
        self.next += 1000;
        let back = if self.ordering == Ordering::Producer { dice.below(2) * dice.below(30) } else { 0 };
        (self.next - back.min(self.next / 1000) * 1000) + self.next / 1000 % 1000
    }

    /// An operation, written to the log and done.
    pub(super) fn write(&mut self, dice: &mut Dice, log: &Log) {
        let (key, order) = (Self::key(dice), self.order(dice));
        let said = if self.ordering == Ordering::Producer { order } else { 0 };
        match dice.below(10) {
            0..5 => {
                let mut fields = dice.fields();
                let mut whole = fields.clone();
                whole.insert("url".to_owned(), json!(key));
                let again = 1 + dice.below(2);
                (0..again)
                    .for_each(|_| log.append(Kind::Put, &key, said, Some(&Json::Object(whole.clone()))));
                fields.remove("url");
                self.put(&key, order, fields);
            }
            5..8 => {
                let mut fields = dice.fields();
                fields.retain(|_, _| dice.below(3) == 0);
                if dice.below(3) == 0 {
                    fields.insert("body".to_owned(), Json::Null);
                }
                if !fields.is_empty() {
                    log.append(Kind::Patch, &key, said, Some(&Json::Object(fields.clone())));
                    self.patch(&key, order, fields);
                }
            }
            _ => {
                log.append(Kind::Delete, &key, said, None);
                let known = self.keys.entry(key).or_default();
                if order > known.order {
                    *known = Key { order, ..Key::default() };
                }
            }
        }
    }

    fn put(&mut self, key: &str, order: u64, mut fields: Map<String, Json>) {
        let known = self.keys.entry(key.to_owned()).or_default();
        if order <= known.order {
            return;
        }
        known.patched.retain(|_, patched| *patched > order);
        let old = known.fields.take().unwrap_or_default();
        for name in known.patched.keys() {
            let value = old.get(name).cloned().unwrap_or(Json::Null);
            fields.insert(name.clone(), value);
        }
        known.order = order;
        known.fields = Some(fields);
    }

    fn patch(&mut self, key: &str, order: u64, patch: Map<String, Json>) {
        let Some(known) = self.keys.get_mut(key) else { return };
        let Some(fields) = &mut known.fields else { return };
        for (name, value) in patch {
            if order > known.order && known.patched.get(&name).is_none_or(|patched| order > *patched) {
                fields.insert(name.clone(), value);
                known.patched.insert(name, order);
            }
        }
    }

    /// The documents as input of a build.
    pub(super) fn lines(&self) -> Vec<Json> {
        let line = |(key, known): (&String, &Key)| {
            let mut fields = known.fields.clone()?;
            fields.retain(|_, value| !value.is_null());
            fields.insert("url".to_owned(), json!(key));
            if self.ordering == Ordering::Producer {
                fields.insert("_order".to_owned(), json!(known.order.to_string()));
            }
            Some(Json::Object(fields))
        };
        self.keys.iter().filter_map(line).collect()
    }
}
