//! Files of at most 500 lines of code, functions of at most 60, `lib.rs` a module list.

use crate::tree::{File, files, none};

/// Lines of code: neither blank nor comment, before the inline tests.
fn lines_of_code(file: &File) -> usize {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    file.code().lines().filter(code).count()
}

/// (first line number, name, length) of each function, by rustfmt's indentation.
fn functions(file: &File) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let words: Vec<&str> = body.split_whitespace().take(5).collect();
        let is_fn = words.iter().position(|word| *word == "fn").is_some_and(|at| {
            words[..at]
                .iter()
                .all(|word| word.starts_with("pub") || ["const", "async", "unsafe", "extern"].contains(word))
        });
        if !is_fn {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        let end = lines[start..].iter().position(|line| {
            *line == close || line.ends_with(" }") && line.starts_with(&format!("{}fn", " ".repeat(indent)))
        });
        if let Some(length) = end {
            found.push((start + 1, body.chars().take(60).collect(), length + 1));
        }
    }
    found
}

#[test]
fn files_are_small() {
    let long: Vec<String> = files(&[".rs"])
        .iter()
        .map(|file| (lines_of_code(file), &file.path))
        .filter(|(lines, _)| *lines > 500)
        .map(|(lines, path)| format!("{path}: {lines} lines of code"))
        .collect();
    none("files over 500 lines of code", &long);
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for file in files(&[".rs"]).iter().filter(|file| !file.is_test()) {
        for (line, name, length) in functions(file) {
            if length > 60 {
                long.push(format!("{}:{line}: {length} lines: {name}", file.path));
            }
        }
    }
    none("functions over 60 lines", &long);
}

#[test]
fn lib_is_a_module_list() {
    let mut complaints = Vec::new();
    for file in files(&["/lib.rs", "lib.rs"]).iter().filter(|file| file.path.ends_with("src/lib.rs")) {
        let code = file.text.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with("fn ") || line.starts_with("pub fn ") || line.starts_with("impl ")
        });
        if code.count() > 0 {
            complaints.push(file.path.clone());
        }
    }
    none("lib.rs with code", &complaints);
}
