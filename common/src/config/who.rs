//! Who uses this process, for audit logs: the user and the machine as they call themselves. Not proof of anything.
//!
//! The failure this prevents: an audit log of lines by somebody, because the commands came from a service or a container, where
//! no variable names the user. Then the system's own name of the user id stands there, or its number.

use std::os::unix::fs::MetadataExt;

/// `user@machine`.
pub fn user_and_machine() -> String {
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(by_id);
    let machine = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let machine = machine.trim();
    let all = if machine.is_empty() { user } else { format!("{user}@{machine}") };
    all.chars().take(100).collect()
}

/// The user by the id that this process runs under.
fn by_id() -> String {
    let Ok(own) = std::fs::metadata("/proc/self") else { return "somebody".to_owned() };
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(own.uid(), &known).unwrap_or_else(|| format!("uid-{}", own.uid()))
}

/// The name of a user id in the text of a passwd file.
fn name_of(id: u32, known: &str) -> Option<String> {
    known.lines().find_map(|line| {
        let mut parts = line.split(':');
        let (name, number) = (parts.next()?, parts.nth(1)?);
        (number.parse() == Ok(id) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_always_named() {
        let who = user_and_machine();
        assert!(!who.is_empty() && who.chars().count() <= 100);
    }

    #[test]
    fn who_is_named_by_no_variable_is_known_by_his_id() {
        let known = "root:x:0:0:root:/root:/bin/sh\n# a note\n:x:8:8::/:\nbuild:x:1007:1007::/srv:/bin/false";
        assert_eq!(name_of(1007, known).as_deref(), Some("build"));
        assert_eq!(name_of(0, known).as_deref(), Some("root"));
        assert!(name_of(7, known).is_none() && name_of(8, known).is_none());
    }
}
