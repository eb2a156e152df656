//! Giving up changes that no shape needs.

use crate::server::ShapesServer;
use crate::shape::Shape;
use std::sync::Arc;

impl ShapesServer {
    /// Gives up changes that no shape needs, has shapes rebased that hold too many of them, and drops those that still
    /// do.
    pub(crate) fn trim_change_log(&self) {
        let published = self.watermarks.published();
        let kept_from = published.saturating_sub(self.config.log_bytes_max);
        let limits = self.compactor.limits(published.saturating_sub(self.config.log_bytes_max / 2));
        let shapes: Vec<Arc<Shape>> = self.catalog.registry.read().all().cloned().collect();
        let (mut floor, applied) = (published, self.watermarks.applied().0);
        let mut dropped = 0;
        let mut found = Vec::new();
        for shape in shapes {
            shape.lock().rest(applied);
            let mut standing = self.compactor.consider(&shape, &limits, &mut found);
            // The space that may be used goes before the time for which offsets are kept.
            let forced =
                standing.held.is_some_and(|at| at < kept_from) && standing.needed.is_none_or(|at| at >= kept_from);
            if standing.may_leave || forced {
                let before_ms = if forced { u64::MAX } else { limits.now_ms.saturating_sub(self.config.log_keep_ms) };
                if let Err(error) = self.retirement.release_bases(&shape, before_ms) {
                    tracing::warn!(%error, "old bases cannot be deleted; it is tried again");
                }
                standing.held = shape.lock().oldest_body();
            }
            let Some(oldest) = standing.held else { continue };
            if oldest < kept_from && !forced {
                dropped += 1;
                self.retirement.drop_shape(&shape);
            } else {
                floor = floor.min(oldest);
            }
        }
        self.compactor.want(found);
        if dropped > 0 {
            tracing::warn!(
                shapes = dropped,
                "shapes are dropped: they need more changes than are kept (shape_log_bytes)"
            );
        }
        // The references say which shapes wait for rows; they are kept until those have come.
        if self.feed.lock().graph.is_waiting() {
            return;
        }
        let Some(point) = self.changes.trim_index.lock().cut(floor) else { return };
        assert!(point.bodies <= floor, "invariant 9: a trim to {} takes changes from {floor} on", point.bodies);
        if let Err(error) = self.changes.store.trim_changes(point) {
            tracing::warn!(%error, "old changes cannot be given up; it is tried again");
        }
    }
}
