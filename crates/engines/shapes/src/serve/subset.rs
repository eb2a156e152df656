//! Subsets of a shape's rows as they are now.

use super::params::Subset;
use super::refusal::Refusal;
use crate::engine::Engine;
use crate::shape::Shape;
use crate::source::session::Session;
use bytes::Bytes;

#[derive(Clone, Debug)]
pub(crate) struct Owned;
impl Owned { pub(crate) fn of(_: &Subset<'_>) -> Self { Self } }
pub(crate) struct Done { pub(crate) body: Bytes }
pub(crate) fn run(_: &Engine, _: &mut Session, _: &Shape, _: &Owned) -> Result<Done, Refusal> { Err(Refusal::Internal) }
