//! Planted faults: tests prove that they would see each.

thalweg_base::planted_faults! {
    /// The journal is trimmed to the highest floor and not to the lowest.
    trims_to_the_fastest_index,
    /// Every part of a frame is replayed as one of logs.
    routes_to_the_first_index,
}
