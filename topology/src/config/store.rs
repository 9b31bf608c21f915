//! Where the topology service keeps what survives it, as `[topology] store` names it: a file of its own, or etcd, which several
//! services share.
//!
//! Rule: a prefix of the keys is always named, because two trees that share one by accident would lead each other.

/// A parsed `store`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// A file on this machine; one service has it.
    File(String),
    /// Servers of one etcd cluster.
    Etcd(EtcdAddress),
}

/// See [`StoreAddress::Etcd`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAddress {
    /// `host:port` of each.
    pub endpoints: Vec<String>,
    /// Before every key: begins with `/` and does not end with it.
    pub prefix: String,
}

const ETCD: &str = "etcd://";
/// How it is written.
const FORM: &str = "write etcd://host:port[,host:port]/prefix";
/// Longest prefix, bytes.
const MOST_PREFIX: usize = 200;

impl StoreAddress {
    /// Reads it. Errors: what is wrong and how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it is empty; name a path, or etcd://host:port/prefix".to_owned());
        }
        let Some(rest) = text.strip_prefix(ETCD) else {
            return match text.split_once("://") {
                Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.to_owned())),
                Some((scheme, _)) => {
                    Err(format!("{scheme}:// is no store of the topology service; name a path, or {FORM}"))
                }
                None => Ok(Self::File(text.to_owned())),
            };
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let sound = |endpoint: &&String| super::dialable(endpoint) && !endpoint.contains('@');
        if let Some(wrong) = endpoints.iter().find(|endpoint| !sound(endpoint)) {
            let hint = if wrong.contains('@') { "; users are named by store_user" } else { "" };
            return Err(format!("{wrong:?} is not host:port; {FORM}{hint}"));
        }
        let prefix = prefix.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if prefix.is_empty() {
            return Err(format!("it names no prefix, which keeps two trees apart; {FORM}, such as /canopy"));
        }
        if prefix.len() > MOST_PREFIX || !prefix.chars().all(plain) {
            return Err(format!("the prefix is at most {MOST_PREFIX} of a-z, A-Z, 0-9 and -_./; {FORM}"));
        }
        Ok(Self::Etcd(EtcdAddress { endpoints, prefix: format!("/{prefix}") }))
    }
}

impl std::fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{ETCD}{}{}", self.endpoints.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_etcd_are_told_apart_and_errors_say_how_it_is_written() {
        let file = |path: &str| Ok(StoreAddress::File(path.to_owned()));
        assert_eq!(StoreAddress::parse("a/b.redb"), file("a/b.redb"));
        assert_eq!(StoreAddress::parse("file:///a/b.redb"), file("/a/b.redb"));
        let StoreAddress::Etcd(address) = StoreAddress::parse("etcd://a:1,b:2/trees/web/").unwrap() else {
            panic!("it is etcd");
        };
        assert_eq!(
            (address.endpoints.as_slice(), address.prefix.as_str()),
            (&["a:1".to_owned(), "b:2".to_owned()][..], "/trees/web")
        );
        assert_eq!(address.to_string(), "etcd://a:1,b:2/trees/web");
        for (text, part) in [
            ("", "name a path"),
            ("s3://bucket", "s3:// is no store"),
            ("etcd://a:1", "names no prefix"),
            ("etcd://a:1/", "names no prefix"),
            ("etcd://a/p", "\"a\" is not host:port"),
            ("etcd:///p", "is not host:port"),
            ("etcd://a:1,/p", "is not host:port"),
            ("etcd://u:p@a:1/p", "store_user"),
            ("etcd://a:1/p q", "the prefix is at most"),
        ] {
            let wrong = StoreAddress::parse(text).unwrap_err();
            assert!(wrong.contains(part), "{text}: {wrong}");
        }
    }
}
