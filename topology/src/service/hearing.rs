//! Where reports come in.
//!
//! A report that changes nothing that is stored is answered at once ([`super::report`]). The others wait here for each other:
//! whatever came while the last change was stored is one change together, with one write to the disk and one snapshot, so
//! that a thousand leaves that get ready at once cost about what one does.
//!
//! Rule: a node is answered after its word was stored. The queue is bounded; who finds it full waits.

use std::sync::Arc;

use canopy_common::{
    drain::Drain,
    error::{ErrorClass, Failure},
};
use tokio::sync::{mpsc, oneshot};

use super::{report::Word, serve::Service};

/// Words that wait at most.
const ROOM: usize = 4096;

/// A word that waits, and who waits for its answer.
type Waiting = (Word, oneshot::Sender<Result<u64, Failure>>);

/// The way in.
pub type Door = mpsc::Sender<Waiting>;

/// A queue.
pub fn queue() -> (Door, mpsc::Receiver<Waiting>) {
    mpsc::channel(ROOM)
}

/// Has a word taken over; the epoch of the newest snapshot then.
pub async fn hear(service: &Service, word: Word) -> Result<u64, Failure> {
    let word = match service.renew(word) {
        Ok(renewed) => return renewed.map_err(Failure::from),
        Err(word) => *word,
    };
    let (tell, told) = oneshot::channel();
    let leaves = || Failure::new(ErrorClass::Unavailable, "the topology service leaves");
    service.door().send((word, tell)).await.map_err(|_| leaves())?;
    told.await.map_err(|_| leaves())?
}

/// Takes over what waits, until the service drains.
pub async fn listen(service: Arc<Service>, mut words: mpsc::Receiver<Waiting>, drain: Drain) {
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = drain.wait_started() => return,
            count = words.recv_many(&mut waiting, ROOM) => if count == 0 { return },
        }
        let (said, tell): (Vec<Word>, Vec<_>) = waiting.drain(..).unzip();
        let changed = service.change(move |control, now| Ok(control.hear_all(said, now))).await;
        match changed {
            Ok((results, epoch)) => {
                for (result, tell) in results.into_iter().zip(tell) {
                    let _may_have_gone = tell.send(result.map(|()| epoch).map_err(Failure::from));
                }
            }
            Err(error) => {
                let failure = Failure::from(error);
                for tell in tell {
                    let _may_have_gone = tell.send(Err(failure.clone()));
                }
            }
        }
    }
}
