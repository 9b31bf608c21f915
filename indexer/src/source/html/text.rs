//! Text as it is collected: runs of white space are one space, lines end where blocks do, and a part that turns out to
//! be invisible can be cut out again.

/// Text in the making.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    /// White space was seen since the last character.
    space: bool,
}

impl Text {
    /// Appends text; stops once there are `limit` bytes.
    pub(super) fn push(&mut self, text: &str, limit: usize) {
        for letter in text.chars() {
            if letter.is_whitespace() {
                self.space = true;
                continue;
            }
            // Soft hyphens, byte order marks and NUL are not seen on screen either.
            if matches!(letter, '\u{ad}' | '\u{feff}' | '\0') {
                continue;
            }
            if self.text.len() + letter.len_utf8() + 1 > limit {
                return;
            }
            if std::mem::take(&mut self.space) && !self.text.is_empty() && !self.text.ends_with('\n') {
                self.text.push(' ');
            }
            self.text.push(letter);
        }
    }

    /// Separates what follows from what came before.
    pub(super) fn space(&mut self) {
        self.space = true;
    }

    /// Ends the line.
    pub(super) fn line(&mut self) {
        self.space = false;
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// The place where the next text will be.
    pub(super) fn mark(&mut self) -> usize {
        self.line();
        self.text.len()
    }

    /// Cuts out everything from a mark on. A mark that was cut out itself cuts nothing.
    pub(super) fn cut(&mut self, mark: usize) -> String {
        if !self.text.is_char_boundary(mark) {
            return String::new();
        }
        self.space = true;
        self.text.split_off(mark)
    }

    /// The text.
    pub(super) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }
}
