//! The query language from text to message.

mod expansion;
mod filters;
mod frequencies;
mod lenient;
mod newer;
mod paste;
mod properties;
mod strict;
mod words;
