//! Waiting for something to become true, with a limit. No test sleeps in the hope that something has happened.

use std::{fmt::Debug, time::Duration};

use tokio::time::Instant;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until `look` gives a value; after `patience` it fails, naming `what`.
pub async fn wait_for<T, F: Future<Output = Option<T>>>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {patience:?} in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks until what `look` gives is `wanted`; the failure shows what it was last.
pub async fn wait_until<T: PartialEq + Debug, F: Future<Output = T>>(
    what: &str,
    patience: Duration,
    wanted: T,
    mut look: impl FnMut() -> F,
) {
    let end = Instant::now() + patience;
    loop {
        let found = look().await;
        if found == wanted {
            return;
        }
        assert!(Instant::now() < end, "waited {patience:?} for {what} to be {wanted:?}; it is {found:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
