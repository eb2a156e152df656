//! State that a restored server must keep of a stream, and offsets that it must refuse.

use crate::http::Request;
use crate::model::{Model, Truth};
use crate::owner::produced;
use crate::session::Session;

/// `pieces` is how many of the stream's appends were restored.
pub(super) fn check(session: &mut Session<'_>, model: &Model, pieces: usize, closed: bool) -> Result<(), String> {
    let restored = &model.pieces[..pieces];
    let mut ask = |request: &Request| {
        let answer = session.call(request).map_err(|_| "it went away".to_owned())?;
        Ok::<_, String>((answer.status, format!("{} {:?}", answer.status, answer.text())))
    };
    // Positions of before name a history that went on without this one.
    if let Some(end) = restored.iter().rev().find_map(|piece| piece.end.as_ref()) {
        let request = Request::get(&format!("{}?offset={end}", model.path));
        let (status, said) = ask(&request)?;
        if status != 400 {
            return Err(format!("{}, a position of before, is answered {said}", request.line));
        }
    }
    // On a closed stream only the append that closed it is recognised.
    if closed || model.closed != Truth::No {
        return Ok(());
    }
    for producer in 0..model.producers.len() {
        let last = restored.iter().rev().find(|piece| piece.sent_by.is_some_and(|by| by.producer == producer));
        if let Some(piece) = last {
            let (status, said) = ask(&produced(model, piece))?;
            if status != 204 {
                return Err(format!("{}: the retry of {:?} is answered {said}", model.path, piece.sent_by));
            }
        }
    }
    Ok(())
}
