//! How traffic to etcd is encrypted, and who each side is: its servers by an authority's certificate, this service by a
//! certificate of its own where they ask for one.
//!
//! The failure this prevents: a password that crosses the network in the clear though somebody named certificates, or an
//! authority's file without one in it, with which nobody is trusted and every connection fails without a word of the
//! file. Rules: the files are looked at before the service starts, and read again for each connection, so that they
//! can be exchanged while it runs; what is in the key's file is never shown.

use std::{io::ErrorKind, path::Path};

use canopy_common::{bounded, config::Secret};
use etcd_client::{Certificate, Identity, TlsOptions};

use crate::{
    config::TopologyConfig,
    error::{Error, Result},
};

/// Largest file of certificates that is read, bytes.
const MOST: u64 = 1 << 20;

/// The files, by name.
#[derive(Debug, Clone)]
pub struct Tls {
    authority: String,
    /// Certificate and key.
    identity: Option<(String, String)>,
    server: String,
}

impl Tls {
    /// Of a configuration; `None`: it names none. Errors: a file can't be read, or holds something else.
    pub fn new(config: &TopologyConfig) -> Result<Option<Self>> {
        if config.store_ca_file.is_empty() {
            return Ok(None);
        }
        let own = (config.store_cert_file.clone(), config.store_key_file.clone());
        let tls = Self {
            authority: config.store_ca_file.clone(),
            identity: (!own.0.is_empty()).then_some(own),
            server: config.store_server_name.clone(),
        };
        tls.options().map(|_| Some(tls))
    }

    /// As the client takes them, read now. Blocks.
    pub fn options(&self) -> Result<TlsOptions> {
        let authority = pem("store_ca_file", &self.authority, "CERTIFICATE")?;
        let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(authority.reveal()));
        if let Some((certificate, key)) = &self.identity {
            let certificate = pem("store_cert_file", certificate, "CERTIFICATE")?;
            let key = pem("store_key_file", key, "PRIVATE KEY")?;
            options = options.identity(Identity::from_pem(certificate.reveal(), key.reveal()));
        }
        if !self.server.is_empty() {
            options = options.domain_name(&self.server);
        }
        Ok(options)
    }
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
    let sections = text.reveal().matches("-----BEGIN ").count();
    let begins = |line: &str| {
        line.trim_end()
            .strip_prefix("-----BEGIN ")
            .is_some_and(|rest| rest.ends_with(&format!("{what}-----")))
    };
    let ends = |line: &str| {
        line.trim_end().strip_prefix("-----END ").is_some_and(|rest| rest.ends_with(&format!("{what}-----")))
    };
    if !text.reveal().lines().any(begins) || !text.reveal().lines().any(ends) {
        let holds = if sections == 0 { "nothing" } else { "something else" };
        return wrong(format!("holds {holds} in PEM; {what} is expected"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
