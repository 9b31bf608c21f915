//! A fast field as one column of ordered 64-bit numbers, whatever its type, with the way back to values.

use canopy_common::topk::SortValue;
use tantivy::{
    columnar::{
        Column, ColumnType, DynamicColumn, DynamicColumnHandle, MonotonicallyMappableToU64, StrColumn,
    },
    u64_to_f64, u64_to_i64,
};

use crate::error::{Error, Result};

/// Place of a type in the order of values of mixed types (see `canopy_common::topk`).
pub fn rank_of(kind: ColumnType) -> u8 {
    match kind {
        ColumnType::Bool => 1,
        ColumnType::I64 | ColumnType::DateTime => 2,
        ColumnType::U64 => 3,
        ColumnType::F64 => 4,
        ColumnType::Str | ColumnType::Bytes | ColumnType::IpAddr => 5,
    }
}

/// One typed column of a field. A map attribute may have several, one per type.
#[derive(Clone)]
pub struct FieldColumn {
    /// Type of the values.
    pub kind: ColumnType,
    /// The values, as numbers of the same order; term ordinals for text.
    pub values: Column<u64>,
    /// Text: the words of the ordinals.
    pub words: Option<StrColumn>,
}

impl FieldColumn {
    /// Opens a column. `None` for types that no field of ours has.
    pub fn open(handle: &DynamicColumnHandle) -> Result<Option<Self>> {
        let kind = handle.column_type();
        if kind == ColumnType::Str {
            let column = handle.open().map_err(Error::engine("open fast field"))?;
            let DynamicColumn::Str(words) = column else { return Ok(None) };
            return Ok(Some(Self { kind, values: words.ords().clone(), words: Some(words) }));
        }
        if !matches!(kind, ColumnType::Bool | ColumnType::I64 | ColumnType::U64 | ColumnType::F64) {
            return Ok(None);
        }
        let values = handle.open_u64_lenient().map_err(Error::engine("open fast field"))?;
        Ok(values.map(|values| Self { kind, values, words: None }))
    }

    /// The text of an ordinal.
    pub fn word(&self, ord: u64) -> Result<String> {
        let mut text = String::new();
        if let Some(words) = &self.words {
            words.ord_to_str(ord, &mut text).map_err(Error::engine("read fast field"))?;
        }
        Ok(text)
    }

    /// The ordinal of a text; `None`: no document of the segment has it.
    pub fn ord(&self, word: &str) -> Result<Option<u64>> {
        let Some(words) = &self.words else { return Ok(None) };
        words.dictionary().term_ord(word.as_bytes()).map_err(Error::engine("look up keyword"))
    }

    /// The value that a number stands for.
    pub fn value(&self, number: u64) -> Result<SortValue> {
        Ok(match self.kind {
            ColumnType::Bool => SortValue::Bool(bool::from_u64(number)),
            ColumnType::I64 => SortValue::I64(u64_to_i64(number)),
            ColumnType::U64 => SortValue::U64(number),
            ColumnType::F64 => SortValue::F64(u64_to_f64(number)),
            _ => SortValue::Text(self.word(number)?),
        })
    }
}
