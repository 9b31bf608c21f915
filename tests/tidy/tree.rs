//! Reads the source tree: every file that belongs to the project, with its path from the top.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A text file.
pub struct File {
    /// Path from the top, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// Code before the inline tests.
    pub fn code(&self) -> &str {
        self.text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or(&self.text)
    }

    /// Whether it is a test, harness or benchmark.
    pub fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.ends_with("tests.rs")
    }
}

/// The top of the tree.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is below the top").to_path_buf()
}

/// All files with one of the extensions.
pub fn files(extensions: &[&str]) -> Vec<File> {
    let top = top();
    let mut found = Vec::new();
    let mut open = vec![top.clone()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory") {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && name != ".git" && name != "node_modules" {
                    open.push(path);
                }
            } else if extensions.iter().any(|extension| name.ends_with(extension)) {
                let relative = path.strip_prefix(&top).expect("below the top");
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.push(File { path: relative.to_string_lossy().into_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no files with {extensions:?} below {}", top.display());
    found
}

/// Fails with all complaints at once.
pub fn none(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}
