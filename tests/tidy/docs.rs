//! Every file says what it is, and what the documents point at exists.

use crate::tree::{files, none, top};

#[test]
fn every_file_begins_with_its_argument() {
    let silent: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|file| {
            !file.text.lines().find(|line| !line.starts_with("#!")).unwrap_or("").starts_with("//!")
        })
        .map(|file| file.path.clone())
        .collect();
    none("files without a //! at the top", &silent);
}

#[test]
fn paths_in_documents_exist() {
    let mut missing = Vec::new();
    for file in files(&[".md"]) {
        for path in file.text.split('`').skip(1).step_by(2) {
            let first = path.split('/').next().unwrap_or("");
            let is_path = path.contains('/')
                && !path.contains([' ', '<', '*', '{', '$', '='])
                && top().join(first).is_dir()
                && !first.is_empty();
            if is_path && !top().join(path.trim_end_matches('/')).exists() {
                missing.push(format!("{}: {path}", file.path));
            }
        }
    }
    none("paths that do not exist", &missing);
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
        concat!("FIX", "ME"),
    ];
    let mut found = Vec::new();
    for file in files(&[".rs", ".sh", ".py", ".js"]) {
        for (number, line) in file.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    none("unfinished", &found);
}
