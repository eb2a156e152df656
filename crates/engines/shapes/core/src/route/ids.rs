//! Numbers of the change path in memory. They mean nothing outside of the process.

/// A shape's place in the router. It is given to one shape at a time, and again when no transaction can name it any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

impl RouteId {
    /// Its place in a table by route ids.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A way of encoding changes: bodies of a transaction that are encoded alike lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProjectionId(pub u32);

impl ProjectionId {
    /// Its place in a table by projections.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The projection of one shape with subqueries, which shares its bodies with no other.
    #[must_use]
    pub fn private(route_id: RouteId) -> Self {
        Self(u32::MAX - route_id.0)
    }
}
