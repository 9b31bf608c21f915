//! The next version with another number of shards: everything goes through the second half of a build again, the documents
//! of the last version from their whole form. Deletes that are remembered move with the slot of their key.

use std::path::Path;

use canopy_format::{
    document::Document,
    graves::{Grave, Graves},
    layout::slot,
};
use tantivy::BitSet;

use super::{Absorbed, base::Shard, damaged, replay::Replay, shard::add_graves};
use crate::{
    build::{
        BuildRequest,
        make::{self, Made},
        partition::{Bucket, Partition},
        plan::{Memory, Plan},
        row::{Codec, Row, Written},
        seal::Sealed,
        timing::Timing,
    },
    error::{Error, Result},
};

/// Makes all shards of the plan of those that were.
pub(super) fn make(
    request: &BuildRequest,
    plan: &Plan,
    (bases, buckets): (&[Shard], Vec<Bucket>),
    (work, memory): (&Path, Memory),
    mut timing: Timing,
) -> Result<(Made, Absorbed)> {
    let directory = work.join("moved");
    std::fs::create_dir(&directory).map_err(Error::io(&directory))?;
    let partition = Partition::new(plan.layout.shards, memory.rows, &directory);
    let codec = Codec::new(&plan.schema);
    let mut moving =
        Moving { request, plan, codec: &codec, partition: &partition, documents: 0, graves: vec![] };
    let mut absorbed = Absorbed::default();
    for (base, bucket) in bases.iter().zip(buckets) {
        absorbed.merge(&moving.shard(base, bucket)?);
    }
    let (documents, graves) = (moving.documents, moving.graves);
    let memory = Memory::share(request.memory, request.threads, plan.layout.shards);
    let buckets = partition.close(memory.keep)?;
    let mut shards =
        make::write(request, plan, &codec, (buckets, documents), (&directory, memory), &mut timing)?;
    for (number, written) in shards.iter_mut().enumerate() {
        let here = |grave: &Grave| shard_of(plan, grave.slot).is_ok_and(|shard| shard as usize == number);
        let graves: Graves = graves.iter().copied().filter(here).collect();
        if !graves.is_empty() {
            let (directory, files) = (written.directory.clone(), std::mem::take(&mut written.files));
            let mut sealed = Sealed { directory, files };
            add_graves(&mut sealed, &graves)?;
            written.files = sealed.files;
        }
    }
    absorbed.analysed = documents;
    let mut made = Made::of(shards, work, timing);
    made.counts.long_tokens = made.shards.iter().map(|shard| shard.counts.long_tokens).sum();
    Ok((made, absorbed))
}

fn shard_of(plan: &Plan, slot: u16) -> Result<u32> {
    let shard = plan.layout.table.get(usize::from(slot));
    shard.map(|shard| u32::from(*shard)).ok_or_else(|| damaged("the layout", "a slot has no shard"))
}

/// Documents on their way to other shards.
struct Moving<'a> {
    request: &'a BuildRequest,
    plan: &'a Plan,
    codec: &'a Codec,
    partition: &'a Partition,
    documents: u64,
    graves: Vec<Grave>,
}

impl Moving<'_> {
    fn shard(&mut self, base: &Shard, bucket: Bucket) -> Result<Absorbed> {
        let mut dead: Vec<BitSet> =
            base.segments.iter().map(|segment| BitSet::with_max_value(segment.documents())).collect();
        let mut graves: std::collections::BTreeMap<_, _> =
            base.graves.iter().map(|grave| (grave.key, grave)).collect();
        let mut replay = Replay::new(bucket, base, self.plan.ordering)?;
        let mut absorbed = Absorbed::default();
        while let Some(change) = replay.next()? {
            graves.remove(&change.key);
            graves.extend(change.grave.map(|grave| (change.key, grave)));
            if let Some(((segment, document), _)) = change.old {
                if let Some(dead) = dead.get_mut(segment) {
                    dead.insert(document);
                }
                absorbed.removed += 1;
            }
            if let Some((document, written)) = change.new {
                self.add(&document, &written)?;
                absorbed.documents += 1;
            }
        }
        absorbed.merge(&replay.finish()?);
        self.graves.extend(graves.into_values());
        for (number, (segment, dead)) in base.segments.iter().zip(&dead).enumerate() {
            for at in (0..segment.documents()).filter(|document| !dead.contains(*document)) {
                let (document, written) = base.whole((number, at))?;
                self.add(&document, &written)?;
            }
        }
        Ok(absorbed)
    }

    fn add(&mut self, document: &Document, written: &Written) -> Result<()> {
        self.request.cancel.check()?;
        let shard = shard_of(self.plan, slot(&document.key))?;
        let bytes = self.codec.pack(document, written);
        self.documents += 1;
        self.partition.add(shard, vec![Row { hash: document.key_hash().0, order: 0, bytes }])
    }
}
