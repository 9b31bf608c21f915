//! The files by which the topology service shows a store in etcd who it is, and knows the store: a password and certificates.
//!
//! The failure this prevents: an authority's file without an authority in it, with which every connection fails without a word
//! of the file. Rules: what is named is looked at before the service starts and by `canopy config check`, also by a binary that
//! was built without etcd; an error names the setting and the file and shows nothing of what is in it.

use std::{io::ErrorKind, path::Path};

use canopy_common::{bounded, config::Secret};

use super::TopologyConfig;
use crate::error::{Error, Result};

/// Largest file of certificates that is read, bytes.
const MOST: u64 = 1 << 20;

/// The files of certificates, as they are now: what the client is made from.
#[derive(Debug)]
pub struct Certificates {
    /// Of the authority.
    pub authority: Secret,
    /// This service's own certificate and its key.
    pub identity: Option<(Secret, Secret)>,
}

/// The password of the user, when one is named. Errors: the file. Blocks.
pub fn password(config: &TopologyConfig) -> Result<Option<Secret>> {
    if config.store_user.is_empty() {
        return Ok(None);
    }
    let path = &config.store_password_file;
    let text = bounded::text(Path::new(path), bounded::MOST_SECRET)
        .map_err(|source| Error::Io { what: format!("topology.store_password_file {path}"), source })?;
    let password = Secret::new(&text);
    if password.is_empty() {
        let user = &config.store_user;
        let reason = format!("topology.store_password_file {path} is empty; write the password of {user}");
        return Err(Error::invalid("topology.store_password_file", reason));
    }
    Ok(Some(password))
}

/// The certificates, when an authority is named. Errors: a file can't be read, or holds something else. Blocks.
pub fn certificates(config: &TopologyConfig) -> Result<Option<Certificates>> {
    if config.store_ca_file.is_empty() {
        return Ok(None);
    }
    let authority = pem("store_ca_file", &config.store_ca_file, "CERTIFICATE")?;
    let identity = if config.store_cert_file.is_empty() {
        None
    } else {
        let certificate = pem("store_cert_file", &config.store_cert_file, "CERTIFICATE")?;
        Some((certificate, pem("store_key_file", &config.store_key_file, "PRIVATE KEY")?))
    };
    Ok(Some(Certificates { authority, identity }))
}

/// The text of a file that holds `what` in PEM.
fn pem(key: &str, path: &str, what: &str) -> Result<Secret> {
    let failed = |source| Error::Io { what: format!("topology.{key} {path}"), source };
    let wrong = |reason: String| {
        let key = format!("topology.{key}");
        let message = format!("{key} {path} {reason}");
        Err(Error::invalid(key, message))
    };
    let text = match bounded::text(Path::new(path), MOST) {
        Ok(text) => Secret::new(&text),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            return wrong(format!("has more than {MOST} bytes; at most so many are read"));
        }
        Err(error) => return Err(failed(error)),
    };
    // Keys are also called RSA or EC PRIVATE KEY.
    let marked = |mark: &str| {
        let is = |line: &str| {
            let rest = line.trim_end().strip_prefix(mark);
            rest.is_some_and(|rest| rest.ends_with(&format!("{what}-----")))
        };
        text.reveal().lines().any(is)
    };
    if !marked("-----BEGIN ") || !marked("-----END ") {
        let holds = if text.reveal().contains("-----BEGIN ") { "something else" } else { "nothing" };
        return wrong(format!("holds {holds} in PEM; {what} is expected"));
    }
    Ok(text)
}
