//! Planted faults: tests prove that the simulation would find each.

thalweg_base::planted_faults! {
    /// The keys of a journal's objects name their term: an old and a new owner never meet at one.
    key_with_term,
    /// A take-over removes objects behind the first hole before it fences.
    cleaned_before_fence,
    /// A batch is acknowledged before its object is written.
    acknowledged_before_put,
    /// A batch is acknowledged although an object with a lower number is not written.
    acknowledged_before_lower,
    /// A fence is removed with the objects that are not needed any more.
    fence_trimmed,
    /// Objects that a take-over finds void are removed with those that the floor has passed.
    void_trimmed,
    /// The object that names the new floor is written before all batches are carried over it.
    floor_before_carried,
    /// What is removed days later is chosen by its own age alone.
    old_by_itself,
}
