//! Who published a version: an Ed25519 signature over the exact bytes of its manifest, in a file beside it. The manifest names every
//! file by length and BLAKE3, so it stands for the whole version.
//!
//! The failure this prevents: whoever may write to the store decides what is served. Rules: a node with keys takes only versions
//! that one of them signed, and looks before it brings anything else; the signature is written before the manifest, so that no
//! reader sees a version that is not signed yet; with several keys each one counts, so that keys can be exchanged: add the
//! new one everywhere, sign with it, take the old one away when no version of it is left.
//!
//! A private key is PKCS#8, a public one SubjectPublicKeyInfo or its 32 bytes as base64; both are what `openssl pkey` reads and
//! writes.

use std::{fmt, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use canopy_common::bounded;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The only algorithm there is.
const ALGORITHM: &str = "ed25519";
/// What stands before the 32 bytes of a private key in PKCS#8.
const PRIVATE: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// What stands before the 32 bytes of a public key in SubjectPublicKeyInfo.
const PUBLIC: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Where the keys are named.
const VERIFY_KEYS: &str = "store.verify_keys";
/// Largest key file that is read, bytes.
const MAX_FILE: u64 = 16 << 10;
/// Most keys that a node trusts.
pub const MAX_KEYS: usize = 64;

/// A private key, which signs.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Of 32 secret bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed)
            .map(Self)
            .map_err(|_| invalid("sign-key", "it can't be used".to_owned()))
    }

    /// Of a PEM text.
    pub fn from_pem(text: &str) -> Result<Self> {
        let bad = |reason: &str| invalid("sign-key", reason.to_owned());
        let der = pem(text, "PRIVATE KEY")
            .ok_or_else(|| bad("it is no private key in PEM; `canopy index keygen --out DIR` makes one"))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der);
        pair.map(Self).map_err(|_| bad("it is no Ed25519 key; `canopy index keygen --out DIR` makes one"))
    }

    /// Of a PEM file.
    pub fn read(path: &Path) -> Result<Self> {
        let unread = |error| invalid("sign-key", format!("it can't be read: {error}"));
        Self::from_pem(&text(path).map_err(unread)?).map_err(|error| match error {
            Error::Invalid { field, reason } => {
                Error::Invalid { field, reason: format!("{}: {reason}", path.display()) }
            }
            other => other,
        })
    }

    /// The file of a key of 32 secret bytes: PKCS#8 in PEM.
    pub fn pem_of(seed: &[u8; 32]) -> String {
        armoured("PRIVATE KEY", &[&PRIVATE[..], seed].concat())
    }

    /// The key that checks what this one signs.
    pub fn public(&self) -> VerifyKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        VerifyKey(bytes)
    }

    /// Signs a manifest.
    pub fn sign(&self, manifest: &[u8]) -> Signature {
        Signature {
            algorithm: ALGORITHM.to_owned(),
            key: self.public().id(),
            signature: BASE64.encode(self.0.sign(manifest)),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

/// A public key, which checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyKey([u8; 32]);

impl VerifyKey {
    /// Of base64 of its 32 bytes, or of a PEM text.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = match pem(text, "PUBLIC KEY") {
            Some(der) => der.strip_prefix(&PUBLIC)?.to_vec(),
            None => BASE64.decode(text.trim()).ok()?,
        };
        bytes.try_into().ok().map(Self)
    }

    /// As the line of a configuration.
    pub fn to_base64(self) -> String {
        BASE64.encode(self.0)
    }

    /// As a file: SubjectPublicKeyInfo in PEM.
    pub fn to_pem(self) -> String {
        armoured("PUBLIC KEY", &[&PUBLIC[..], &self.0].concat())
    }

    /// Its name in signatures: 16 hex digits.
    pub fn id(&self) -> String {
        blake3::hash(&self.0).to_hex()[..16].to_owned()
    }
}

/// What stands beside a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// `ed25519`.
    pub algorithm: String,
    /// Id of the key.
    pub key: String,
    /// Base64.
    pub signature: String,
}

impl Signature {
    /// As written.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// As read; the error in words.
    pub fn from_json(bytes: &[u8]) -> std::result::Result<Self, String> {
        let signature: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("its signature can't be read: {error}"))?;
        if signature.algorithm != ALGORITHM {
            let algorithm: String = signature.algorithm.chars().take(40).collect();
            return Err(format!("its signature is of {algorithm:?}, this build knows {ALGORITHM}"));
        }
        Ok(signature)
    }
}

/// The keys of which one must have signed; none: everything is taken.
#[derive(Debug, Clone, Default)]
pub struct Trusted(Arc<[VerifyKey]>);

impl Trusted {
    /// Of keys.
    pub fn of(keys: impl IntoIterator<Item = VerifyKey>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Of the lines of a configuration: base64 of a key, or the path of a file that holds one.
    pub fn read(lines: &[String]) -> Result<Self> {
        if lines.len() > MAX_KEYS {
            return Err(invalid(VERIFY_KEYS, format!("{} keys; give at most {MAX_KEYS}", lines.len())));
        }
        let key = |line: &String| {
            if let Some(key) = VerifyKey::parse(line) {
                return Ok(key);
            }
            let text = text(Path::new(line)).map_err(|error| {
                invalid(
                    VERIFY_KEYS,
                    format!("{line:?} is no key in base64, and no file that can be read: {error}"),
                )
            })?;
            VerifyKey::parse(&text).ok_or_else(|| {
                let reason = format!("{line} holds no Ed25519 public key; `canopy index keygen` writes one");
                invalid(VERIFY_KEYS, reason)
            })
        };
        lines.iter().map(key).collect::<Result<Vec<_>>>().map(Self::of)
    }

    /// Whether any version is taken.
    pub fn everybody(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the key that a signature names is one of these.
    pub fn knows(&self, signature: &Signature) -> bool {
        self.0.iter().any(|key| key.id() == signature.key)
    }

    /// Id of the key that signed; the error says what is wrong, in words.
    pub fn check(
        &self,
        manifest: &[u8],
        signature: Option<&Signature>,
    ) -> std::result::Result<String, String> {
        let known = || self.0.iter().map(VerifyKey::id).collect::<Vec<_>>().join(", ");
        let Some(signature) = signature else {
            return Err(format!("it is not signed; taken is what one of these keys signed: {}", known()));
        };
        let raw =
            BASE64.decode(&signature.signature).map_err(|_| "its signature is not base64".to_owned())?;
        let by: Vec<&VerifyKey> = self.0.iter().filter(|key| key.id() == signature.key).collect();
        if by.is_empty() {
            let by: String = signature.key.chars().take(40).collect();
            return Err(format!(
                "it is signed by key {by:?}; taken is what one of these keys signed: {}",
                known()
            ));
        }
        let signed =
            |key: &&VerifyKey| UnparsedPublicKey::new(&ED25519, &key.0).verify(manifest, &raw).is_ok();
        if by.iter().any(signed) {
            return Ok(signature.key.clone());
        }
        Err(format!(
            "its signature by key {} does not fit its manifest: one of them was changed since it was signed",
            signature.key
        ))
    }
}

fn invalid(field: &'static str, reason: String) -> Error {
    Error::Invalid { field, reason }
}

fn text(path: &Path) -> Result<String> {
    bounded::text(path, MAX_FILE).map_err(|source| Error::io(path, source))
}

/// What is between the lines of a PEM text.
fn pem(text: &str, what: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {what}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {what}-----"))?;
    let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    BASE64.decode(body).ok()
}

fn armoured(what: &str, der: &[u8]) -> String {
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", BASE64.encode(der))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SigningKey {
        SigningKey::from_seed(&[byte; 32]).unwrap()
    }

    #[test]
    fn keys_survive_their_files() {
        let pem = SigningKey::pem_of(&[7; 32]);
        let read = SigningKey::from_pem(&pem).unwrap();
        assert_eq!(read.public(), key(7).public());
        let public = read.public();
        assert_eq!(VerifyKey::parse(&public.to_pem()), Some(public));
        assert_eq!(VerifyKey::parse(&format!(" {}\n", public.to_base64())), Some(public));
        assert_eq!(public.id().len(), 16);
        assert!(!format!("{read:?}").contains(&BASE64.encode([7; 32])));
        for bad in ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"] {
            assert!(SigningKey::from_pem(bad).is_err() && VerifyKey::parse(bad).is_none(), "{bad}");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key.pem");
        std::fs::write(&file, public.to_pem()).unwrap();
        let lines = [file.display().to_string(), key(8).public().to_base64()];
        assert_eq!(Trusted::read(&lines).unwrap().0.len(), 2);
        let nowhere = Trusted::read(&["/nowhere".to_owned()]).unwrap_err().to_string();
        assert!(nowhere.starts_with("store.verify_keys: \"/nowhere\" is no key in base64"), "{nowhere}");
        assert!(Trusted::read(&vec![lines[1].clone(); 65]).is_err());
        let missing = SigningKey::read(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(missing.starts_with("sign-key: it can't be read: /nowhere: "), "{missing}");
        let private = SigningKey::read(&file).unwrap_err().to_string();
        assert!(private.contains("no private key") && private.contains("key.pem"), "{private}");
    }

    #[test]
    fn what_openssl_made_is_read() {
        // openssl genpkey -algorithm ed25519; openssl pkey -pubout
        let private = "-----BEGIN PRIVATE KEY-----\n\
                       MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
        let signing = SigningKey::from_pem(private).unwrap();
        // The first test vector of RFC 8032.
        assert_eq!(signing.public().to_base64(), "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
    }

    #[test]
    fn only_what_a_trusted_key_signed_is_taken() {
        let (manifest, other) = (b"manifest".as_slice(), b"manifesto".as_slice());
        let signature = key(1).sign(manifest);
        assert_eq!(Signature::from_json(&signature.to_json()).unwrap(), signature);
        let trusted = Trusted::of([key(2).public(), key(1).public()]);
        assert_eq!(trusted.check(manifest, Some(&signature)), Ok(key(1).public().id()));
        let why = |found: std::result::Result<String, String>| found.unwrap_err();
        assert!(why(trusted.check(manifest, None)).contains("not signed"));
        assert!(why(trusted.check(other, Some(&signature))).contains("does not fit"));
        assert!(why(trusted.check(manifest, Some(&key(3).sign(manifest)))).contains("is signed by key"));
        let forged = Signature { key: key(1).public().id(), ..key(3).sign(manifest) };
        assert!(why(trusted.check(manifest, Some(&forged))).contains("does not fit"));
        let garbled = Signature { signature: "?".into(), ..signature.clone() };
        assert!(why(trusted.check(manifest, Some(&garbled))).contains("base64"));
        let foreign = Signature { algorithm: "rot13".into(), ..signature };
        assert!(Signature::from_json(&foreign.to_json()).unwrap_err().contains("rot13"));
        assert!(Trusted::default().everybody() && !trusted.everybody());
    }
}
