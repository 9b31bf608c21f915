//! `canopy index keygen`: a pair of keys. The private one stays with whoever builds and publishes, the public one goes to every node
//! as `[store] verify_keys`.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use canopy_common::rng::Dice;
use canopy_format::signature::SigningKey;
use serde_json::json;

use crate::say::say;

/// `canopy index keygen`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy index keygen --out keys\n          \
              canopy index publish --from ./canopy-data --to s3://bucket/search --sign-key keys/canopy-sign.pem")]
pub struct Args {
    /// Directory for the two files; created when it does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// A private key of a file.
pub fn read(path: &Path) -> Result<Arc<SigningKey>> {
    Ok(Arc::new(SigningKey::read(path)?))
}

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let (private, public) = (args.out.join("canopy-sign.pem"), args.out.join("canopy-verify.pem"));
    fs::create_dir_all(&args.out).with_context(|| format!("{} can't be made", args.out.display()))?;
    let seed = Dice::key().context("the operating system gives no random bytes")?;
    let key = SigningKey::from_seed(&seed)?.public();
    write(&private, &SigningKey::pem_of(&seed), 0o600)?;
    write(&public, &key.to_pem(), 0o644)?;
    if args.json {
        say!(
            "{:#}",
            json!({ "key": key.id(), "public": key.to_base64(), "sign_key": private, "verify_key": public })
        );
        return Ok(());
    }
    say!("key {}", key.id());
    say!("{} signs versions: keep it where they are built, and nowhere else", private.display());
    say!("{} checks them; in every node's configuration:", public.display());
    say!("[store]\nverify_keys = [\"{}\"]", key.to_base64());
    Ok(())
}

/// Writes a file that must not be there: a key that is written over is lost.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is there already; hint: another --out, keys are never written over", path.display());
        }
        opened => opened.with_context(|| format!("{} can't be written", path.display()))?,
    };
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pair_fits_is_private_and_is_never_written_over() {
        let place = tempfile::tempdir().unwrap();
        let args = Args { out: place.path().join("keys"), json: true };
        run(&args).unwrap();
        let private = args.out.join("canopy-sign.pem");
        let key = read(&private).unwrap();
        let line = args.out.join("canopy-verify.pem").display().to_string();
        let trusted = canopy_format::signature::Trusted::read(&[line]).unwrap();
        assert!(trusted.check(b"x", Some(&key.sign(b"x"))).is_ok());
        assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::read_to_string(&private).unwrap();
        assert!(run(&args).unwrap_err().to_string().contains("there already"));
        assert_eq!(fs::read_to_string(&private).unwrap(), before);
    }
}
