//! Who uses this process, for audit logs: the user and the machine as they call themselves. Not proof of anything.

/// `user@machine`.
pub fn user_and_machine() -> String {
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "somebody".to_owned());
    let machine = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let machine = machine.trim();
    let all = if machine.is_empty() { user } else { format!("{user}@{machine}") };
    all.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_always_named() {
        let who = user_and_machine();
        assert!(!who.is_empty() && who.chars().count() <= 100);
    }
}
