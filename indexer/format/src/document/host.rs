//! The host of an address: what stands between `//` and the path, without user and port, in lower case.

/// Longest host name of the domain system.
const MAX_HOST: usize = 253;

/// Host of an address; `None` when it has none.
pub(super) fn of(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let known = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if scheme.is_empty() || !scheme.chars().all(known) {
        return None;
    }
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => host.split(':').next()?,
    };
    let host = host.trim_end_matches('.').to_lowercase();
    let good = !host.is_empty()
        && host.len() <= MAX_HOST
        && !host.chars().any(|c| c.is_whitespace() || c.is_control());
    good.then_some(host)
}
