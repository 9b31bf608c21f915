//! Whether a version may go to a target: the same corpus, enough documents, a signature that is taken there. All of it before the
//! first byte.

use canopy_common::ids::Version;
use canopy_format::{
    error::Error as FormatError,
    manifest::Manifest,
    store::{Corpus, Table},
};

use super::PublishRequest;
use crate::error::{Error, Result};

/// The target's corpus, which must be the same one.
pub(super) async fn corpus(request: &PublishRequest, manifest: &Manifest) -> Result<()> {
    let ours = request.from.corpus(&request.corpus).await?;
    let theirs = match request.to.corpus(&request.corpus).await {
        Ok(theirs) => theirs,
        Err(FormatError::NoCorpus(_)) => {
            let corpus = Corpus { schema: manifest.schema.clone(), ..ours.clone() };
            match request.to.create_corpus(&corpus).await {
                Ok(()) => return Ok(()),
                // Somebody who publishes too was faster.
                Err(FormatError::Exists(_)) => request.to.corpus(&request.corpus).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    if (ours.partitions, ours.ordering) != (theirs.partitions, theirs.ordering) {
        let reason = format!(
            "the target's {} has {} log partitions and orders by {:?}, the version's {} and {:?}; these never change",
            request.corpus, theirs.partitions, theirs.ordering, ours.partitions, ours.ordering
        );
        return Err(Error::Invalid { field: "corpus", reason });
    }
    if theirs.schema.id() != manifest.schema.id() && !request.force {
        let reason = format!(
            "{} has schema {}, the target's {} has {}; `canopy corpus set-schema` changes the target's, --force publishes it all \
             the same",
            manifest.version,
            manifest.schema.id(),
            request.corpus,
            theirs.schema.id()
        );
        return Err(Error::Invalid { field: "schema", reason });
    }
    Ok(())
}

/// The target's newest version that can be read, compared with the one that comes.
pub(super) async fn size(request: &PublishRequest, manifest: &Manifest) -> Result<Option<Version>> {
    let before = match request.to.to_build_on(&request.corpus).await {
        Ok(found) => Some(found.manifest),
        Err(FormatError::NoVersionYet(_)) => None,
        Err(error) if error.of_the_version() => None,
        Err(error) => return Err(error.into()),
    };
    let (documents, version) = (manifest.documents(), manifest.version);
    let refused = documents == 0 && !request.force;
    if refused {
        let reason = format!("{version} holds no document; --force publishes it all the same");
        return Err(Error::Invalid { field: "version", reason });
    }
    let other = before.as_ref().filter(|before| before.version != version || request.renumber);
    if let Some(other) =
        other.filter(|other| documents.saturating_mul(2) < other.documents() && !request.force)
    {
        return Err(Error::Shrunken { documents, before: other.documents(), parent: other.version });
    }
    Ok(before.map(|before| before.version))
}

/// Whether it can go with a signature that the target's readers take.
pub(super) fn signature(request: &PublishRequest, table: &Table) -> Result<()> {
    let changes = request.renumber || request.warmup.is_some();
    let refused = |reason: String| Err(Error::Invalid { field: "sign-key", reason });
    if let Some(key) = &request.sign {
        // What counts is whether the key is one of the target's.
        let signed = key.sign(&table.bytes);
        return match request.to.trusted().check(&table.bytes, Some(&signed)) {
            Err(reason) if !request.to.trusted().everybody() => refused(format!("with this key {reason}")),
            _ => Ok(()),
        };
    }
    if table.signature.is_some() && changes {
        return refused(
            "the manifest changes, so that its signature does not hold any more; give a key".to_owned(),
        );
    }
    if request.to.trusted().everybody() {
        return Ok(());
    }
    match request.to.trusted().check(&table.bytes, table.signature.as_ref()) {
        Ok(_) if !changes => Ok(()),
        Ok(_) => refused("the manifest changes and would be without a signature; give a key".to_owned()),
        Err(reason) => refused(format!("{}: {reason}", table.manifest.version)),
    }
}
