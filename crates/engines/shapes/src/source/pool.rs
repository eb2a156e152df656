use super::error::SourceError;
use super::session::Session;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_wire::http::{Fetch, Pool as Threads};
use thalweg_wire::pg::Config;
pub struct Pool {
    threads: Threads,
    idle: Arc<Mutex<Vec<Session>>>,
    config: Config,
}
impl Pool {
    pub fn new(config: Config, n: usize) -> Self {
        Self { threads: Threads::new("shapes-db", n, 10_000), idle: Arc::default(), config }
    }
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(Result<&mut Session, SourceError>) -> T + Send + 'static,
    ) -> Result<Fetch<T>, SourceError> {
        let (idle, config) = (Arc::clone(&self.idle), self.config.clone());
        self.threads
            .run(move || {
                let kept = idle.lock().pop();
                let session = match kept {
                    Some(s) => Ok(s),
                    None => Session::connect(&config).map_err(SourceError::from),
                };
                match session {
                    Err(e) => job(Err(e)),
                    Ok(mut s) => {
                        let v = job(Ok(&mut s));
                        if s.is_usable() {
                            idle.lock().push(s);
                        }
                        v
                    }
                }
            })
            .ok_or(SourceError::Full { waiting: 10_000 })
    }
    pub fn submit(
        &self,
        job: impl FnOnce(Result<&mut Session, SourceError>) + Send + 'static,
    ) -> Result<(), SourceError> {
        self.run(job).map(|_| ())
    }
}
