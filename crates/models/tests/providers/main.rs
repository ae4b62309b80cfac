//! Real models against fake providers: every way in which a stream can go well or wrong, for every dialect.

mod cases;
mod dialects;
mod dropping;
mod expected;
mod fake;
mod runs;
mod sealed;
mod sent;
mod table;
