//! One word per idea: file names that say nothing are not used, and names follow the vocabulary of docs/architecture.md.

use crate::tree::{files, none};

#[test]
fn file_names_say_what_is_inside() {
    let empty =
        ["utils.rs", "util.rs", "helpers.rs", "helper.rs", "manager.rs", "misc.rs", "mod.rs", "common.rs"];
    let found: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|file| empty.iter().any(|name| file.path.ends_with(&format!("/{name}"))))
        .map(|file| file.path.clone())
        .collect();
    none("file names that say nothing", &found);
}

#[test]
fn nothing_points_at_one_machine() {
    let marks = [concat!("/wo", "rk/"), concat!("/ho", "me/")];
    let mut found = Vec::new();
    for file in files(&[".rs", ".md", ".sh", ".py", ".toml", ".js", ".css", ".html"]) {
        for (number, line) in file.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    none("paths of one machine", &found);
}
