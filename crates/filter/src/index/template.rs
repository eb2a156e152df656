//! Predicates without their constants. A million conditions on one column differ in constants only: the rest is stored
//! once.

use crate::expr::Expr;
use crate::types::value::Value;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The constants of a template's holes, in order. Template and constants determine the predicate, so two predicates are
/// equal if both are.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Constants {
    None,
    One(Value<'static>),
    Many(Box<[Value<'static>]>),
}

impl Constants {
    pub(super) fn as_slice(&self) -> &[Value<'static>] {
        match self {
            Self::None => &[],
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

/// Splits a predicate. Only constants in comparisons are taken out: nothing but the comparison uses their values.
pub(super) fn split(expr: &Expr) -> (Expr, Constants) {
    let (mut expr, mut values) = (expr.clone(), Vec::new());
    take(&mut expr, &mut values);
    let constants = match values.len() {
        0 => Constants::None,
        1 => Constants::One(values.remove(0)),
        _ => Constants::Many(values.into()),
    };
    (expr, constants)
}

fn take(expr: &mut Expr, values: &mut Vec<Value<'static>>) {
    match expr {
        Expr::And(list) | Expr::Or(list) => list.iter_mut().for_each(|expr| take(expr, values)),
        Expr::Not(operand) => take(operand, values),
        Expr::Compare(_, _, sides) | Expr::Distinct(_, _, sides) | Expr::Like(_, sides) => {
            for side in sides.iter_mut() {
                let Ok(hole) = u16::try_from(values.len()) else { return };
                if let Expr::Const(value, ty) = side {
                    values.push(std::mem::replace(value, Value::Null));
                    *side = Expr::Hole(hole, *ty);
                }
            }
        }
        _ => {}
    }
}

/// Templates that predicates have, each once.
#[derive(Default)]
pub(super) struct Templates {
    all: slab::Slab<Template>,
    ids: HashTable<u32>,
}

struct Template {
    expr: Expr,
    /// Number of slots with this template.
    users: u32,
}

impl Templates {
    pub(super) fn get(&self, id: u32) -> Option<&Expr> {
        self.all.get(id as usize).map(|template| &template.expr)
    }

    /// Returns the equal template, and counts one more user.
    pub(super) fn share(&mut self, expr: Expr, hasher: &DefaultHashBuilder) -> u32 {
        let hash = hasher.hash_one(&expr);
        if let Some(id) = self.ids.find(hash, |id| self.all[*id as usize].expr == expr) {
            self.all[*id as usize].users += 1;
            return *id;
        }
        let id = self.all.insert(Template { expr, users: 1 }) as u32;
        let all = &self.all;
        self.ids.insert_unique(hash, id, |id| hasher.hash_one(&all[*id as usize].expr));
        id
    }

    /// One user less.
    pub(super) fn release(&mut self, id: u32, hasher: &DefaultHashBuilder) {
        let Some(template) = self.all.get_mut(id as usize) else { return };
        template.users -= 1;
        if template.users > 0 {
            return;
        }
        let hash = hasher.hash_one(&template.expr);
        if let Ok(found) = self.ids.find_entry(hash, |known| *known == id) {
            found.remove();
        }
        self.all.remove(id as usize);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
