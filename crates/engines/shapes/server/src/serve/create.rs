//! Having shapes made that requests wait for, on threads that may ask Postgres.

use super::access::Clause;
use super::admission::{Kind, Permit};
use super::create_batcher::{Batch, CreateRequest};
use super::in_flight_creates::InFlightCreate;
use super::refusal::Refusal;
use super::state::ServeState;
use crate::failures;
use crate::make::scan;
use crate::shape::Shape;
use std::sync::Arc;
use thalweg_shapes_core::request::params;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::table::TableName;
use thalweg_shapes_source::catalog::Found;
use thalweg_shapes_source::session::Session;

impl ServeState {
    /// Has the shape made on a thread that may ask Postgres, unless that is under way: a request that waits for another
    /// one's attempt costs no more than a reader.
    pub(super) fn create(
        self: &Arc<Self>,
        shape: &params::Shape<'_>,
        query_key: Vec<u8>,
        narrowing: &[Clause],
    ) -> Result<(Arc<InFlightCreate>, Permit), Refusal> {
        let (making, new) = self.in_flight.join(&query_key);
        if !new {
            return Ok((making, self.admission.enter(Kind::Existing)?));
        }
        let permit = match self.admission.enter(Kind::Initial) {
            Ok(permit) => permit,
            Err(overloaded) => {
                let failure = Failure::unavailable("concurrent_request_limit_exceeded", overloaded, 6);
                self.in_flight.finish(&query_key, Err(failure));
                return Err(overloaded.into());
            }
        };
        let definition = shape.to_definition();
        let table = definition.table.clone();
        if self.batcher.add(CreateRequest { definition, query_key, narrowing: narrowing.to_vec() }) {
            self.create_all(table);
        }
        Ok((making, permit))
    }

    /// Has all shapes of a table made that wait for it, on a thread that may ask Postgres.
    fn create_all(self: &Arc<Self>, table: TableName) {
        let (inner, of) = (Arc::clone(self), table.clone());
        let queued = self.database.submit(move |session| {
            let Some(batch) = inner.batcher.take(&of) else { return };
            if batch.more {
                inner.create_all(of.clone());
            }
            let found = match session {
                Ok(session) => inner.server.table_of(session, &of).map(|found| (session, found)),
                Err(error) => Err(failures::unavailable(error)),
            };
            match found {
                Ok((session, found)) => inner.create_batch(session, &found, &batch),
                Err(failure) => inner.give_up(&batch.requests, &failure),
            }
        });
        if let Err(error) = queued
            && let Some(batch) = self.batcher.take_now(&table)
        {
            self.give_up(&batch.requests, &failures::unavailable(error));
        }
    }

    fn give_up(&self, requests: &[CreateRequest], failure: &Failure) {
        requests.iter().for_each(|request| self.in_flight.finish(&request.query_key, Err(failure.clone())));
    }

    fn create_batch(self: &Arc<Self>, session: &mut Session, found: &Found, batch: &Batch<'_>) {
        let micros = self.server.lifetime.clock.unix_us();
        let mut fillings = Vec::with_capacity(batch.requests.len());
        for request in &batch.requests {
            let checked = self.server.check_narrowing(session, &found.table, &request.narrowing);
            match checked
                .and_then(|()| self.server.begin(session, found, &request.definition, &request.query_key, micros))
            {
                Err(failure) => self.in_flight.finish(&request.query_key, Err(failure)),
                Ok((shape, filling)) => {
                    self.in_flight.finish(&request.query_key, Ok(shape));
                    fillings.extend(filling);
                }
            }
        }
        batch.prepared();
        let mut scans = scan::scans(fillings).into_iter();
        let first = scans.next();
        for fillings in scans {
            let inner = Arc::clone(self);
            let shapes: Vec<Arc<Shape>> = fillings.iter().map(|filling| Arc::clone(&filling.shape)).collect();
            let queued = self.database.submit(move |session| match session {
                Ok(session) => inner.server.fill(session, fillings),
                Err(error) => inner.server.fail(&fillings, &failures::unavailable(error)),
            });
            if let Err(error) = queued {
                let failure = failures::unavailable(error);
                for shape in shapes {
                    self.server.retirement.fail_shape(&shape, failure.clone());
                }
            }
        }
        if let Some(fillings) = first {
            self.server.fill(session, fillings);
        }
    }
}
