//! What clippy cannot see of determinism: an unbiased `select!` draws a random branch, and a test that sleeps waits for
//! luck.

use crate::tree::{files, none};

#[test]
fn every_select_is_biased() {
    let mut found = Vec::new();
    for file in files(&[".rs"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if code.contains(concat!("select", "! {"))
                && lines.get(number + 1).is_none_or(|next| next.trim() != "biased;")
            {
                found.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    none("select! without biased", &found);
}

#[test]
fn tests_do_not_wait_by_sleeping_threads() {
    let mark = concat!("thread::", "sleep(");
    let found: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|file| file.text.contains(mark))
        .map(|file| file.path.clone())
        .collect();
    none("a thread sleeps", &found);
}
