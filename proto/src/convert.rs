//! Between wire messages and the vocabulary of `canopy-common`; only ids, order keys and outcomes are converted, the
//! rest of the data path works on the messages themselves.

use canopy_common::{
    coverage::{Cut, Outcome},
    error::ErrorClass,
    ids::KeyHash,
    topk::{Order, SortKey, SortValue},
};

use crate::v1;

/// A wire sort value.
pub fn sort_value(value: &v1::SortValue) -> SortValue {
    use v1::sort_value::Kind;
    match &value.kind {
        Some(Kind::Text(text)) => SortValue::Text(text.clone()),
        Some(Kind::I64(n)) => SortValue::I64(*n),
        Some(Kind::U64(n)) => SortValue::U64(*n),
        Some(Kind::F64(n)) => SortValue::F64(*n),
        Some(Kind::Bool(b)) => SortValue::Bool(*b),
        Some(Kind::Missing(_)) | None => SortValue::Missing,
    }
}

/// A sort value for the wire.
pub fn sort_value_to_wire(value: &SortValue) -> v1::SortValue {
    use v1::sort_value::Kind;
    let kind = match value {
        SortValue::Missing => Kind::Missing(true),
        SortValue::Text(text) => Kind::Text(text.clone()),
        SortValue::I64(n) => Kind::I64(*n),
        SortValue::U64(n) => Kind::U64(*n),
        SortValue::F64(n) => Kind::F64(*n),
        SortValue::Bool(b) => Kind::Bool(*b),
    };
    v1::SortValue { kind: Some(kind) }
}

/// Where a hit stands.
pub fn sort_key(hit: &v1::Hit) -> SortKey {
    SortKey {
        stage: hit.stage,
        values: hit.sort.iter().map(sort_value).collect(),
        score: hit.score,
        key: KeyHash::from_parts(hit.key_high, hit.key_low),
    }
}

/// The order that a request asks for.
pub fn order(sort: &[v1::SortBy]) -> Order {
    Order { descending: sort.iter().map(|by| by.descending).collect() }
}

/// A wire cut.
pub fn cut(cut: i32) -> Cut {
    match v1::Cut::try_from(cut) {
        Ok(v1::Cut::None) => Cut::None,
        Ok(v1::Cut::Anytime) => Cut::Anytime,
        Ok(v1::Cut::Expansion) => Cut::Expansion,
        Ok(v1::Cut::Hits) => Cut::Hits,
        Ok(v1::Cut::Deadline) | Err(_) => Cut::Deadline,
    }
}

/// A cut for the wire.
pub fn cut_to_wire(cut: Cut) -> v1::Cut {
    match cut {
        Cut::None => v1::Cut::None,
        Cut::Deadline => v1::Cut::Deadline,
        Cut::Anytime => v1::Cut::Anytime,
        Cut::Expansion => v1::Cut::Expansion,
        Cut::Hits => v1::Cut::Hits,
    }
}

/// The outcome in a shard's reply. What this build does not know counts as failed.
pub fn outcome(reply: &v1::ShardReply) -> Outcome {
    match v1::Outcome::try_from(reply.outcome) {
        Ok(v1::Outcome::Answered) => Outcome::Answered {
            searched: reply.documents_searched,
            pruned: reply.documents_pruned,
            cut: cut(reply.cut),
        },
        Ok(v1::Outcome::TimedOut) => Outcome::TimedOut,
        Ok(v1::Outcome::Shed) => Outcome::Shed,
        Ok(v1::Outcome::Unavailable) => Outcome::Unavailable,
        Ok(v1::Outcome::Skipped) => Outcome::Skipped { pruned: reply.documents_pruned > 0 },
        Ok(v1::Outcome::Failed) => Outcome::Failed(ErrorClass::from_wire(reply.error_class)),
        Ok(v1::Outcome::Unspecified) | Err(_) => Outcome::Failed(ErrorClass::Internal),
    }
}
