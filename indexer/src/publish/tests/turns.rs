//! Two publishers of one copy, step by step beside each other: whoever of them comes to an end, the manifest that is there has the
//! signature of the one who wrote it, and nobody who was told that he published finds another's.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering as Atomic},
    },
    task::Poll,
};

use canopy_format::{error::Result as StoreResult, store::hooked::Call};

use super::*;

/// A store that hands the turn over before each call that matters, and counts them.
fn in_turns(inner: &Arc<InMemory>, calls: &Arc<AtomicUsize>) -> VersionStore {
    let calls = calls.clone();
    VersionStore::remote(Arc::new(Hooked::new(inner.clone(), move |call, at| {
        // That the files are there changes nothing: only manifests and their signatures are looked at in turn.
        let manifests = at.filename().is_some_and(|name| name.starts_with("manifest"));
        let hands_over = call == Call::Put || call == Call::Get && manifests;
        calls.fetch_add(usize::from(hands_over), Atomic::SeqCst);
        let mut waits = hands_over;
        std::future::poll_fn(
            move |_| {
                if std::mem::take(&mut waits) { Poll::Pending } else { Poll::Ready(Ok(())) }
            },
        )
    })))
}

/// What one of them wants to publish.
#[derive(Clone)]
struct Wish {
    json: Vec<u8>,
    key: Option<u8>,
}

fn key(byte: u8) -> SigningKey {
    SigningKey::from_seed(&[byte; 32]).unwrap()
}

fn publishing<'a>(
    store: &'a VersionStore,
    wish: &'a Wish,
) -> Pin<Box<dyn Future<Output = StoreResult<()>> + 'a>> {
    Box::pin(async move {
        let signature = wish.key.map(|byte| key(byte).sign(&wish.json));
        store.publish_signed(&wish.json, signature.as_ref()).await
    })
}

/// Lets them go on in the order of `turns` (then one after the other); what each ended with, and the calls they made.
async fn run_beside(
    objects: &Arc<InMemory>,
    wishes: &[Wish; 2],
    turns: u32,
) -> ([StoreResult<()>; 2], usize) {
    let calls = Arc::new(AtomicUsize::new(0));
    let stores = wishes.each_ref().map(|_| in_turns(objects, &calls));
    let [mut first, mut second] = [publishing(&stores[0], &wishes[0]), publishing(&stores[1], &wishes[1])];
    let mut ended: [Option<StoreResult<()>>; 2] = [None, None];
    let mut turn = 0;
    while ended.iter().any(Option::is_none) {
        let whose = usize::from(turn < 32 && turns >> turn & 1 == 1);
        let whose = if ended[whose].is_some() { 1 - whose } else { whose };
        turn += 1;
        let publisher = if whose == 0 { &mut first } else { &mut second };
        if let Poll::Ready(result) = futures::poll!(publisher.as_mut()) {
            ended[whose] = Some(result);
        }
    }
    (ended.map(Option::unwrap), calls.load(Atomic::SeqCst))
}

/// What a reader finds who trusts nobody in particular, and one who trusts the key.
async fn trusted(objects: &Arc<InMemory>, version: Version, byte: u8) -> bool {
    let reader = VersionStore::remote(objects.clone()).trusting(Trusted::of([key(byte).public()]));
    reader.table("web", version).await.is_ok()
}

#[tokio::test]
async fn of_two_publishers_of_one_number_each_finds_his_own_or_is_told() {
    let source = Source::new().await;
    let manifest = source.build(20).await;
    let (objects, target) = memory();
    run(&source.to(&target)).await.unwrap();
    // Everything is in place but the manifest.
    let at =
        |name: &str| Path::from(format!("{}/{name}", VersionStore::version_path("web", manifest.version)));
    objects.delete(&at("manifest.json")).await.unwrap();
    let json = manifest.to_json();
    let warmer = Manifest { warmup: vec!["red fox".to_owned()], ..manifest.clone() }.to_json();
    let wish = |json: &[u8], key| Wish { json: json.to_vec(), key };
    for wishes in [
        [wish(&json, Some(1)), wish(&json, None)],
        [wish(&json, Some(1)), wish(&warmer, None)],
        [wish(&json, Some(1)), wish(&warmer, Some(1))],
        [wish(&json, Some(1)), wish(&warmer, Some(2))],
        [wish(&json, Some(1)), wish(&json, Some(1))],
        [wish(&json, Some(1)), wish(&json, Some(2))],
    ] {
        let mut most = 0;
        for turns in 0..1 << 8 {
            let objects = Arc::new(objects.fork());
            let (ended, calls) = run_beside(&objects, &wishes, turns).await;
            most = most.max(calls);
            assert!(ended.iter().any(StoreResult::is_ok), "{turns:b}: {ended:?}");
            let found = VersionStore::remote(objects.clone()).table("web", manifest.version).await.unwrap();
            for (wish, result) in wishes.iter().zip(&ended) {
                let Ok(()) = result else { continue };
                assert!(found.bytes == wish.json, "{turns:b}: he was told that it is his: {ended:?}");
                if let Some(byte) = wish.key {
                    assert!(trusted(&objects, manifest.version, byte).await, "{turns:b}: {ended:?}");
                }
            }
            // Whoever signed it, it is a signature of these bytes.
            if let Some(signature) = found.signature {
                let mut valid = false;
                for byte in [1, 2].into_iter().filter(|byte| key(*byte).public().id() == signature.key) {
                    valid = trusted(&objects, manifest.version, byte).await;
                }
                assert!(valid, "{turns:b}: a signature of another manifest: {ended:?}");
            }
        }
        assert!((6..=12).contains(&most), "they are a few calls, which the turns go through: {most}");
    }
}

#[tokio::test]
async fn a_version_that_was_signed_before_signatures_were_named_by_what_they_sign_is_read() {
    let source = Source::new().await;
    let manifest = source.build(20).await;
    let (objects, target) = memory();
    run(&source.to(&target)).await.unwrap();
    let at = Path::from(format!("{}/manifest.sig", VersionStore::version_path("web", manifest.version)));
    let table = target.table("web", manifest.version).await.unwrap();
    assert!(!trusted(&objects, manifest.version, 1).await);
    objects.put(&at, key(1).sign(&table.bytes).to_json().into()).await.unwrap();
    assert!(trusted(&objects, manifest.version, 1).await && !trusted(&objects, manifest.version, 2).await);
}
