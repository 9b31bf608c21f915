//! Checkpoints: what was saved comes back; what is damaged or of something else does not.

use canopy_format::store::Ordering;

use super::bed::{self, base, delete, expect, put, titles};
use crate::overlay::{
    checkpoint::{self, Of, Written},
    config::{OverlayConfig, Policy},
};

fn of(base: &str) -> Of {
    Of { corpus: "web".into(), version: 3, shard: "main/0".into(), base: base.into() }
}

#[test]
fn what_was_saved_comes_back_and_parts_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = OverlayConfig { policy: Policy::Defer, max_documents: 2, ..OverlayConfig::default() };
    let ground = bed::ground(&base(&[("a", "a0"), ("b", "b0")]), Ordering::Producer, true);
    let mut applied = bed::empty(&ground, &config);
    let ordered = |order: u64, mut line: serde_json::Value| {
        line["order"] = order.into();
        line
    };
    bed::write(
        &mut applied,
        &[ordered(1, put("x", "x1")), ordered(2, delete("a")), ordered(2, delete("never"))],
    );
    bed::write(
        &mut applied,
        &[ordered(9, bed::patch("x", "x2")), ordered(3, put("y", "y")), ordered(4, put("z", "z"))],
    );
    let mut written = Written::default();
    let first = written.snapshot(&applied, &of("b"), "epoch").unwrap();
    first.write(dir.path()).unwrap();
    let again = written.snapshot(&applied, &of("b"), "epoch").unwrap();
    assert!(again.bytes() < first.bytes(), "parts do not change");
    std::fs::write(dir.path().join("part-77"), "left by a process that died").unwrap();
    again.write(dir.path()).unwrap();
    assert!(!dir.path().join("part-77").exists());
    let read = checkpoint::read(dir.path(), &of("b"), &ground, &config).unwrap().unwrap();
    let mut back = read.applied;
    assert_eq!((read.epoch.as_str(), back.offsets()), ("epoch", applied.offsets()));
    assert_eq!((back.documents(), back.tombstones()), ((2, 1), 1));
    assert_eq!(titles(&back.view()), expect(&[("b", "b0"), ("x", "x2"), ("y", "y")]));
    // Deletes and orders of fields are remembered, and numbers of parts not used again.
    bed::write(
        &mut back,
        &[ordered(1, put("a", "late")), ordered(1, put("never", "late")), ordered(5, put("x", "x5"))],
    );
    assert_eq!(titles(&back.view()), expect(&[("b", "b0"), ("x", "x2"), ("y", "y")]));
    checkpoint::remove(dir.path()).unwrap();
    assert!(checkpoint::read(dir.path(), &of("b"), &ground, &config).unwrap().is_none());
}

#[test]
fn damaged_bytes_and_another_base_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ground, config) =
        (bed::ground(&base(&[("a", "a0")]), Ordering::Log, true), OverlayConfig::default());
    let mut applied = bed::empty(&ground, &config);
    bed::write(&mut applied, &[put("x", "x"), delete("a")]);
    Written::default().snapshot(&applied, &of("b"), "e").unwrap().write(dir.path()).unwrap();
    let read = |of: &Of| checkpoint::read(dir.path(), of, &ground, &config).map(|read| read.is_some());
    assert!(read(&of("other")).unwrap_err().contains("not of"));
    for name in ["state", "part-0"] {
        let path = dir.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, &flipped).unwrap();
            assert!(read(&of("b")).is_err(), "byte {at} of {name}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&of("b")).is_err(), "{name} cut at {at}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert_eq!(read(&of("b")), Ok(true));
    std::fs::remove_file(dir.path().join("part-0")).unwrap();
    assert!(read(&of("b")).unwrap_err().contains("part-0"));
}
