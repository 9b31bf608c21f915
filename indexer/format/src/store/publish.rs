//! Making a version visible: its signature, then its manifest, both create-only, when everything else is in place.
//!
//! The failure this prevents: two publishers of one copy, of whom one signs or each has a manifest of its own, leave the manifest
//! of one with the signature of the other, or with none, and no reader takes the version. Rules: a signature's name says
//! which bytes it signs, so that nobody writes over or removes another's; two keys for the same manifest: the first one
//! counts, the other publisher is told. The manifest that comes first is the version. Only a version that is published is
//! signed anew, by who says so.

use canopy_common::ids::Version;
use object_store::{ObjectStoreExt, PutPayload, path::Path};

use super::{MANIFEST, VersionStore, check_corpus, object, signature_of};
use crate::{
    error::{Error, Result},
    manifest::Manifest,
    signature::Signature,
};

impl VersionStore {
    /// Makes a version visible that nobody signs; see [`VersionStore::publish_signed`].
    pub async fn publish(&self, manifest: &Manifest) -> Result<()> {
        self.publish_signed(&manifest.to_json(), None).await
    }

    /// Makes the version visible: writes the bytes of its manifest, create-only, after their signature. The version must have been
    /// claimed, and all of its files must be in place with the lengths that the manifest says.
    pub async fn publish_signed(&self, json: &[u8], signature: Option<&Signature>) -> Result<()> {
        let manifest = Manifest::from_json(json, MANIFEST)?;
        let (corpus, version) = (manifest.corpus.as_str(), manifest.version);
        let path = object(corpus, version, MANIFEST);
        if self.size(&path).await?.is_some() {
            return Err(Error::Exists(format!("{corpus} {version}")));
        }
        if self.size(&object(corpus, version, "claim")).await?.is_none() {
            let reason = format!("{version} was never claimed; a build claims its number first");
            return Err(Error::Invalid { field: "version", reason });
        }
        for file in manifest.files() {
            let reason = match self.size(&object(corpus, version, &file.path)).await? {
                Some(bytes) if bytes == file.bytes => continue,
                Some(bytes) => format!("it has {bytes} bytes, the manifest says {}", file.bytes),
                None => "it is missing".into(),
            };
            return Err(Error::Damaged { file: file.path.clone(), reason });
        }
        if let Some(signature) = signature {
            let name = signature_of(json);
            let beside = object(corpus, version, &name);
            match self.create_once(&beside, &signature.to_json(), "").await {
                Err(Error::Exists(_)) => {
                    let reason = format!(
                        "{version} of {corpus} is being published by somebody who signs the same manifest with another key than {}; \
                         sign with that key, or remove {name} when he is gone for good",
                        signature.key
                    );
                    return Err(Error::Invalid { field: "sign-key", reason });
                }
                other => other?,
            }
        }
        self.create_once(&path, json, &format!("{corpus} {version}")).await
    }

    /// Puts another signature beside a version that is there, in the place of the one it has: keys are exchanged so. Whoever reads it
    /// meanwhile finds the old one or the new one. Errors: no such version, or not with this manifest.
    pub async fn sign_anew(
        &self,
        corpus: &str,
        version: Version,
        json: &[u8],
        signature: &Signature,
    ) -> Result<()> {
        check_corpus(corpus)?;
        if self.read(&object(corpus, version, MANIFEST)).await?.is_none_or(|found| found != json) {
            return Err(Error::NoVersion { corpus: corpus.to_owned(), version });
        }
        let beside = object(corpus, version, &signature_of(json));
        self.objects.put(&beside, signature.to_json().into()).await?;
        Ok(())
    }

    /// Writes an object that must not exist with other bytes: a try whose answer was lost has written it.
    async fn create_once(&self, path: &Path, bytes: &[u8], what: &str) -> Result<()> {
        match self.create(path, PutPayload::from(bytes.to_vec()), what).await {
            Err(Error::Exists(_)) if self.read(path).await?.is_some_and(|found| found == bytes) => Ok(()),
            other => other,
        }
    }
}
