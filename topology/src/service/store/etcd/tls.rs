//! How traffic to etcd is encrypted, and who each side is: its servers by an authority's certificate, this service by a
//! certificate of its own where they ask for one.
//!
//! The failure this prevents: a password that crosses the network in the clear though somebody named certificates. Rules: the
//! files are looked at before the service starts, and read again for each connection, so that they can be exchanged while it
//! runs; what is in the key's file is never shown.

use etcd_client::{Certificate, Identity, TlsOptions};

use crate::{
    config::{
        TopologyConfig,
        store_files::{Certificates, certificates},
    },
    error::Result,
};

/// What the configuration says of it.
#[derive(Debug, Clone)]
pub struct Tls(TopologyConfig);

impl Tls {
    /// Of a configuration; `None`: it names none. Errors: a file can't be read, or holds something else. Blocks.
    pub fn new(config: &TopologyConfig) -> Result<Option<Self>> {
        Ok(certificates(config)?.map(|_| Self(config.clone())))
    }

    /// As the client takes them, read now. Blocks.
    pub fn options(&self) -> Result<TlsOptions> {
        let mut options = TlsOptions::new();
        let Some(Certificates { authority, identity }) = certificates(&self.0)? else { return Ok(options) };
        options = options.ca_certificate(Certificate::from_pem(authority.reveal()));
        if let Some((certificate, key)) = identity {
            options = options.identity(Identity::from_pem(certificate.reveal(), key.reveal()));
        }
        if !self.0.store_server_name.is_empty() {
            options = options.domain_name(&self.0.store_server_name);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests;
