//! The choice among several operators or functions: the rules of "Operator Type Resolution" and "Function Type
//! Resolution" in Postgres's manual (`func_select_candidate`).

use super::signatures::Signature;
use crate::types::{Category, Type};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unresolved {
    None,
    Several,
}

fn is_exact(signature: &Signature, inputs: &[Type]) -> bool {
    signature.args() == inputs
}

/// The operator for two operands. A literal without a type is first assumed to have the other operand's type.
pub(super) fn infix(candidates: &[Signature], inputs: [Type; 2]) -> Result<&Signature, Unresolved> {
    let same = match inputs {
        [left, right] if left.is_unknown() && !right.is_unknown() => [right, right],
        [left, right] if right.is_unknown() && !left.is_unknown() => [left, left],
        both => both,
    };
    match candidates.iter().find(|c| is_exact(c, &same)) {
        Some(exact) => Ok(exact),
        None => select(candidates, &inputs),
    }
}

/// The function, or prefix operator, for its arguments.
pub(super) fn select<'a>(candidates: &'a [Signature], inputs: &[Type]) -> Result<&'a Signature, Unresolved> {
    if let Some(exact) = candidates.iter().find(|c| is_exact(c, inputs)) {
        return Ok(exact);
    }
    let fits =
        |c: &&Signature| c.args().len() == inputs.len() && inputs.iter().zip(c.args()).all(|(i, a)| i.becomes(*a));
    let mut left: Vec<&Signature> = candidates.iter().filter(fits).collect();
    let only = |left: &[&'a Signature]| if let [only] = left { Some(*only) } else { None };
    if left.is_empty() {
        return Err(Unresolved::None);
    }
    // Prefer the most exact matches; then the most arguments with the given type or the preferred type of its category.
    let exact = |i: &Type, a: &Type| i == a;
    let preferred = |i: &Type, a: &Type| i == a || a.category() == i.category() && a.is_preferred();
    for good in [&exact as &dyn Fn(&Type, &Type) -> bool, &preferred] {
        let score = |c: &Signature| inputs.iter().zip(c.args()).filter(|(i, a)| !i.is_unknown() && good(i, a)).count();
        let best = left.iter().map(|c| score(c)).max().unwrap_or(0);
        left.retain(|c| score(c) == best);
        if let Some(only) = only(&left) {
            return Ok(only);
        }
    }
    if !inputs.iter().any(|i| i.is_unknown()) {
        return Err(Unresolved::Several);
    }
    if let Some(wanted) = categories(&left, inputs) {
        let agrees = |c: &&Signature| {
            wanted.iter().zip(c.args()).all(|(wanted, arg)| match wanted {
                None => true,
                Some((category, preferred)) => arg.category() == *category && (!preferred || arg.is_preferred()),
            })
        };
        let narrowed: Vec<&Signature> = left.iter().copied().filter(agrees).collect();
        if !narrowed.is_empty() {
            left = narrowed;
        }
        if let Some(only) = only(&left) {
            return Ok(only);
        }
    }
    // If all arguments of known type have one type, try that type for the others.
    let mut known = inputs.iter().filter(|i| !i.is_unknown());
    if let Some(first) = known.next()
        && known.all(|i| i == first)
    {
        left.retain(|c| c.args().iter().all(|a| first.becomes(*a)));
        if let Some(only) = only(&left) {
            return Ok(only);
        }
    }
    Err(Unresolved::Several)
}

/// For each literal without a type its category, and whether the candidates include the category's preferred type;
/// `None` if a literal could be in several categories. The string category wins.
fn categories(candidates: &[&Signature], inputs: &[Type]) -> Option<Vec<Option<(Category, bool)>>> {
    let mut all = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        if !input.is_unknown() {
            all.push(None);
            continue;
        }
        let mut slot: Option<(Category, bool)> = None;
        let mut conflict = false;
        for candidate in candidates {
            let arg = candidate.args()[i];
            let (category, preferred) = (arg.category(), arg.is_preferred());
            match &mut slot {
                None => slot = Some((category, preferred)),
                Some((known, any)) if *known == category => *any |= preferred,
                Some(slot) if category == Category::String => *slot = (category, preferred),
                Some(_) => conflict = true,
            }
        }
        if conflict && slot.is_some_and(|(category, _)| category != Category::String) {
            return None;
        }
        all.push(slot);
    }
    Some(all)
}
