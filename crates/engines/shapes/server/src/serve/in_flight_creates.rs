//! Shapes that are being made: requests for the same definition wait for the one attempt.

use crate::shape::Shape;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_http::Waker;
use thalweg_shapes_model::failure::Failure;

/// An attempt to make a shape, until the shape is registered or the attempt has failed.
#[derive(Default)]
pub(crate) struct InFlightCreate(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    result: Option<Result<Arc<Shape>, Failure>>,
    waiters: Vec<Waker>,
}

impl InFlightCreate {
    /// The result, if the attempt is over; else `waker` is woken when it is.
    pub(crate) fn result(&self, waker: impl FnOnce() -> Waker) -> Option<Result<Arc<Shape>, Failure>> {
        let mut inner = self.0.lock();
        if inner.result.is_none() {
            inner.waiters.push(waker());
        }
        inner.result.clone()
    }

    fn finish(&self, result: Result<Arc<Shape>, Failure>) {
        let waiters = {
            let mut inner = self.0.lock();
            inner.result = Some(result);
            std::mem::take(&mut inner.waiters)
        };
        waiters.iter().for_each(Waker::wake);
    }
}

/// The attempts that are under way, by the query keys of their definitions.
#[derive(Default)]
pub(crate) struct InFlightCreates(Mutex<HashMap<Vec<u8>, Arc<InFlightCreate>>>);

impl InFlightCreates {
    /// The attempt that is under way for this query key, or a new one (`true`), which the caller must carry out.
    pub(crate) fn join(&self, query_key: &[u8]) -> (Arc<InFlightCreate>, bool) {
        let mut all = self.0.lock();
        if let Some(making) = all.get(query_key) {
            return (Arc::clone(making), false);
        }
        let making = Arc::new(InFlightCreate::default());
        all.insert(query_key.to_vec(), Arc::clone(&making));
        (making, true)
    }

    /// Ends an attempt: the shape is made, or the next request begins another one.
    pub(crate) fn finish(&self, query_key: &[u8], result: Result<Arc<Shape>, Failure>) {
        let making = self.0.lock().remove(query_key);
        if let Some(making) = making {
            making.finish(result);
        }
    }
}
