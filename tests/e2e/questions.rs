//! Queries that people and programs might send, drawn from the pages themselves so that most of them find something:
//! words, phrases, exclusions, fields, patterns, filters, sorts, facets, in every language of the corpus.

use canopy_common::rng::Dice;
use canopy_tests::corpus::{Page, instant};

/// Parameters of a search.
pub type Question = Vec<(String, String)>;

struct Asker<'a> {
    pages: &'a [Page],
    dice: Dice,
}

impl<'a> Asker<'a> {
    fn below(&self, bound: usize) -> usize {
        self.dice.below(bound as u64) as usize
    }

    fn chance(&self, of_hundred: u64) -> bool {
        self.dice.below(100) < of_hundred
    }

    fn one<'b>(&self, of: &[&'b str]) -> &'b str {
        of[self.below(of.len())]
    }

    fn page(&self) -> &'a Page {
        &self.pages[self.below(self.pages.len())]
    }

    /// Words in a row of some page: at most `most`, a piece of the text where there are no spaces.
    fn row(&self, most: usize) -> String {
        loop {
            let page = self.page();
            let texts: Vec<&String> = page.title.iter().chain(&page.body).chain(&page.anchors).collect();
            if texts.is_empty() {
                continue;
            }
            let text = texts[self.below(texts.len())];
            let words: Vec<&str> = text.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let at = self.below(words.len());
            let row = words[at..(at + 1 + self.below(most)).min(words.len())].join(" ");
            let chars: Vec<char> = row.chars().collect();
            if chars.len() < 40 {
                return row;
            }
            let start = self.below(chars.len() - 8);
            return chars[start..start + 2 + self.below(6)].iter().collect();
        }
    }

    /// A word without signs that the language gives a meaning.
    fn word(&self) -> String {
        loop {
            let row = self.row(1);
            let word: String = row.chars().filter(|c| c.is_alphanumeric()).take(12).collect();
            if !word.is_empty() {
                return word;
            }
        }
    }

    fn text(&self) -> String {
        let word = || self.word();
        match self.below(14) {
            0..3 => self.row(3),
            3 => format!("{} {} {}", word(), word(), word()),
            4 => format!("+{} {} -{}", word(), word(), word()),
            5 => format!("\"{}\"", self.row(3).replace('"', " ")),
            6 => format!("\"{} {}\"~{}", word(), word(), 1 + self.below(4)),
            7 => format!("title:{} {}", word(), word()),
            8 => format!("{} OR ({} AND {})", word(), word(), word()),
            9 => format!("{}* {}", word().chars().take(3).collect::<String>(), word()),
            10 => format!("{}~ {}^2.5", word(), word()),
            11 => format!("anchors:\"{}\" {}", self.row(2).replace('"', " "), word()),
            12 => format!("{} lang:{}", word(), self.page().language),
            _ => format!("{} site:{}", word(), self.page().host.as_deref().unwrap_or("none.example")),
        }
    }

    fn filter(&self) -> String {
        let page = self.page();
        let date = || instant(self.page().published.unwrap_or(0));
        match self.below(9) {
            0 => format!("host:{}", page.host.as_deref().unwrap_or("none.example")),
            1 => format!("lang:{},{}", page.language, self.page().language),
            2 => format!("-topic:topic-{}", self.below(12)),
            3 => format!("topic:topic-{}", self.below(4)),
            4 => format!("static_rank:>={}", self.below(20) as f64 / 20.0),
            5 => format!("published:[{} TO *]", date()),
            6 => format!("attributes.color:{}", self.one(&["red", "green", "\"black & white\""])),
            7 => format!("attributes.price:[{} TO {}}}", self.below(10), 10 + self.below(20)),
            _ => format!("attributes.stock:{}", self.chance(50)),
        }
    }

    fn sort(&self) -> &'static str {
        self.one(&[
            "-published",
            "published",
            "-static_rank,published",
            "host,-_score",
            "attributes.price",
            "-attributes.price,host",
            "attributes.size",
            "-topic",
            "lang,-static_rank",
            "_score",
        ])
    }

    fn question(&self) -> Question {
        let mut question = Question::new();
        let mut put = |name: &str, value: String| question.push((name.to_owned(), value));
        if self.chance(6) {
            put("filter", self.filter());
        } else {
            put("q", self.text());
        }
        if self.chance(30) {
            put("filter", self.filter());
        }
        if self.chance(8) {
            put("filter", self.filter());
        }
        if self.chance(25) {
            put("sort", self.sort().to_owned());
        }
        if self.chance(25) {
            let facets = [
                "host",
                "lang,topic:3",
                "topic:100:exact",
                "attributes.color,attributes.price:5",
                "attributes.stock",
            ];
            put("facets", self.one(&facets).to_owned());
        }
        if self.chance(8) {
            put("collapse", self.one(&["host", "lang"]).to_owned());
        }
        if self.chance(10) {
            put("min_should_match", (1 + self.below(3)).to_string());
        }
        if self.chance(10) {
            put("profile", "ranked".to_owned());
        }
        if self.chance(40) {
            put("total", self.one(&["exact", "none"]).to_owned());
        }
        put("k", [1, 10, 10, 10, 25, 100][self.below(6)].to_string());
        if self.chance(10) {
            put("offset", self.below(30).to_string());
        }
        question
    }
}

/// `count` of them, the same for the same seed.
pub fn ask(seed: u64, count: usize, pages: &[Page]) -> Vec<Question> {
    let asker = Asker { pages, dice: Dice::seeded(seed) };
    (0..count).map(|_| asker.question()).collect()
}
