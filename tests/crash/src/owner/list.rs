//! The list of streams, page by page: each living one once, no deleted one.

use super::Owner;
use crate::http::Request;
use crate::model::Truth;
use crate::session::Down;
use crate::world::Sabotage;
use std::collections::BTreeMap;

impl Owner<'_> {
    pub(super) fn check_list(&mut self) -> Result<(), Down> {
        if self.world().is_peer() {
            return Ok(());
        }
        let prefix = format!("crash/w{}/", self.number);
        let Some(mut listed) = self.list(&prefix)? else { return Ok(()) };
        if self.world().sabotage(Sabotage::Unlisted) {
            listed.pop_last();
        }
        for model in &self.streams {
            let name = model.path.trim_start_matches("/v1/stream/");
            let Some(shown) = listed.remove(name) else {
                if model.exists == Truth::Yes {
                    self.violation(format!("{name} is there, but not listed below {prefix}"));
                }
                continue;
            };
            let closed = if shown["closed"] == true { Truth::Yes } else { Truth::No };
            let end = model.pieces.last().and_then(|piece| piece.end.as_deref()).filter(|_| model.settled());
            if shown["contentType"] != model.format.media_type()
                || (model.closed != Truth::Maybe && closed != model.closed)
                || end.is_some_and(|end| shown["nextOffset"] != end)
            {
                self.violation(format!(
                    "{name}: the list shows {shown}; it is {:?}, closed {:?}, and ends at {end:?}",
                    model.format, model.closed
                ));
            }
        }
        if let Some((name, shown)) = listed.pop_first() {
            self.violation(format!("{name} is listed, but was deleted or never made: {shown}"));
        }
        self.count("lists compared");
        Ok(())
    }

    /// All pages; none if the server is too busy for it.
    fn list(&mut self, prefix: &str) -> Result<Option<BTreeMap<String, serde_json::Value>>, Down> {
        let (mut listed, mut after) = (BTreeMap::new(), String::new());
        let limit = self.pick(6) + 1;
        loop {
            let path = format!("/v1/stream/__ds/streams?prefix={prefix}&limit={limit}&after={after}");
            let answer = self.session.call(&Request::get(&path))?;
            if matches!(answer.status, 429 | 503) {
                return Ok(None);
            }
            let page = answer.json();
            let (Some(streams), 200) = (page["streams"].as_array(), answer.status) else {
                self.violation(format!("GET {path}: {} {:?}", answer.status, answer.text()));
                return Err(Down);
            };
            for stream in streams {
                let name = stream["name"].as_str().unwrap_or_default().to_owned();
                if name <= after || listed.keys().next_back().is_some_and(|last| name <= *last) {
                    self.violation(format!("GET {path}: {name} stands after {:?}", listed.keys().next_back()));
                }
                listed.insert(name, stream.clone());
            }
            match page["next"].as_str() {
                Some(next) if next > after.as_str() => next.clone_into(&mut after),
                Some(next) => {
                    self.violation(format!("GET {path}: the next page is after {next}"));
                    return Err(Down);
                }
                None => return Ok(Some(listed)),
            }
        }
    }
}
