//! Making a version visible: its signature, then its manifest, create-only, when everything else is in place.

use object_store::{ObjectStoreExt, PutPayload};

use super::{MANIFEST, SIGNATURE, VersionStore, object};
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
        let beside = object(corpus, version, SIGNATURE);
        match signature {
            Some(signature) => drop(self.objects.put(&beside, signature.to_json().into()).await?),
            None => self.delete(&beside).await?,
        }
        let created =
            self.create(&path, PutPayload::from(json.to_vec()), &format!("{corpus} {version}")).await;
        match created {
            // A try whose answer was lost has written it.
            Err(Error::Exists(_)) if self.read(&path).await?.is_some_and(|found| found == json) => Ok(()),
            other => other,
        }
    }
}
